"""The agents of a tree, each by the same rules; what is wrong below is said at the tool that leads there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from palaver.errors import FieldError
from palaver.schemas.models import AgentSpec, Budget

from ..faults import Fault, field_error
from ..lookup import Known
from ..tree import AgentTree
from .endpoints import endpoint_faults
from .money import price_faults
from .options import option_faults
from .own_servers import server_faults
from .providers import provider_faults
from .tools import tool_faults


def agent_faults(tree: AgentTree, known: Known) -> Iterator[Fault]:
    """Yield the faults of the agent of a tree, at their places in a body that has it as ``agent``."""
    agent = tree.agent
    yield from _version_faults(agent)
    yield from endpoint_faults(agent, known)
    yield from provider_faults(tree, known.callable_providers)
    yield from tool_faults(agent, known.tools)
    yield from option_faults(tree, known.policies)
    yield from server_faults(tree, known)


def faults_below(tree: AgentTree | None, budget: Budget | None, known: Known) -> Iterator[FieldError]:
    """Yield the faults of all agents below one, whose runs have to keep to the ``budget`` of the run above, too."""
    for node in () if tree is None else tree.nodes[1:]:
        own = agent_faults(node, known)
        for each in chain(own, price_faults(budget, node.models), price_faults(node.budget, node.models)):
            fault = field_error(each)
            yield FieldError(node.place, fault.code, f"the agent {node.agent.name}: {fault.pointer} {fault.message}")


def _version_faults(agent: AgentSpec) -> Iterator[FieldError]:
    if agent.version is not None and "version" in agent.model_fields_set:
        why = (
            "is given by the server: name its agents as NAME or NAME@VERSION in the place of this one, or leave it out"
        )
        yield FieldError("/agent/version", "unknown_agent", why)
