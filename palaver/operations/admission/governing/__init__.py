"""Station 4: the operator's policy and the caller's key, applied to each way in which an agent comes to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from palaver.config.policy import DEFAULT_TENANT, PolicyRule, fits
from palaver.operations.admission.faults import refuse
from palaver.operations.admission.governing.keys import check_heard, refuse_other_agents, refuse_other_names
from palaver.operations.admission.governing.rules import Governed, needs_tools
from palaver.operations.admission.governing.second_person import nameless_faults
from palaver.operations.admission.governing.trees import governed_tree, rules_of
from palaver.operations.admission.lookup import Standing, is_governed
from palaver.operations.admission.tree import AgentTree
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.models import AgentSpec, Budget, Retry, Submission, WithAgent
from palaver.vocabulary.ids import tenant_of

__all__ = [
    "check_heard",
    "govern_conversation",
    "govern_kept",
    "govern_run",
    "may_name",
    "nameless_faults",
    "refuse_other_agents",
    "refuse_other_names",
]

Body = TypeVar("Body", bound=WithAgent)
RunBody = TypeVar("RunBody", Submission, Retry)


async def govern_run(
    body: RunBody,
    tree: AgentTree | None,
    standing: Standing | None,
    backend: Backend,
    caller: Caller,
    *,
    about: str | None,
) -> RunBody:
    """Return the body of a new run with what the policy demands. ``tree`` is of its own agent, ``standing`` is what it
    goes on with, ``about`` the id of that.

    Raises:
        Refused: the policy or the key does not allow it.
        StoreUnavailable: the store took too long.
    """
    if not is_governed(backend, caller):
        if tree is not None:
            refuse(nameless_faults(tree.agent, caller, tree.writers))
        return body
    owner, budget, given = "", body.budget, True
    if standing is not None:
        tree, owner = (standing.tree, standing.kind) if tree is None else (tree, "")
        budget, given = (standing.budget, False) if budget is None else (budget, True)
    if tree is None:
        return body
    governed = await _governed(
        tree, backend, caller, budget=budget, given=given, owner=owner, submits=True, about=about
    )
    changes: dict[str, Any] = {"budget": governed.budget}
    # An agent that the body leaves out stays left out, unless the policy demands another one; or the key is for some
    # agents alone: then it is the one that was looked at, whatever comes between.
    if not owner or governed.agent is not tree.agent or caller.agents is not None:
        changes["agent"] = governed.agent
    return body.model_copy(update=changes)


async def govern_conversation(body: Body, tree: AgentTree | None, backend: Backend, caller: Caller) -> Body:
    """Return the body of a conversation, with what the policy demands of its agent.

    Raises:
        Refused: the policy or the key does not allow it.
        StoreUnavailable: the store took too long.
    """
    if tree is None or not is_governed(backend, caller):
        return body
    governed = await _governed(tree, backend, caller)
    return body if governed.agent is tree.agent else body.model_copy(update={"agent": governed.agent})


async def govern_kept(tree: AgentTree, backend: Backend, caller: Caller) -> None:
    """Check an agent that is to be kept on the server.

    Raises:
        Refused: the policy does not allow it.
        StoreUnavailable: the store took too long.
    """
    if backend.policy.rules:
        await _governed(tree, backend, caller)


async def may_name(models: Sequence[str], backend: Backend, caller: Caller) -> Sequence[str]:
    """Return those of the models that an agent in a request of the caller may have.

    Raises:
        StoreUnavailable: the store took too long.
    """
    if caller.agents is not None:
        return ()
    if not backend.policy.rules:
        return models
    tenant = await _tenant(backend, caller, None)
    return [model for model in models if _allows(backend.policy.rules_for(tenant, AgentSpec(model=model)), model)]


async def _governed(
    tree: AgentTree,
    backend: Backend,
    caller: Caller,
    *,
    budget: Budget | None = None,
    given: bool = True,
    owner: str = "",
    submits: bool = False,
    about: str | None = None,
) -> Governed:
    """Return the agent of a tree and the budget of its runs with what the rules for it and for all below demand.
    ``given`` says that the request gives the budget, ``submits`` that it is about a run, ``about`` in or behind what it
    is to run."""
    for node in tree.nodes:
        refuse_other_agents(node.agent, caller)
    rules = rules_of(tree, backend.policy, await _tenant(backend, caller, about))
    tools = await within_deadline(backend.catalog.tools()) if any(map(needs_tools, rules.values())) else None
    governed = governed_tree(tree, rules, tools, budget=budget, given=given, owner=owner, submits=submits)
    refuse(governed.faults or (nameless_faults(governed.agent, caller, tree.writers) if submits else ()))
    return governed


def _allows(rules: Mapping[str, PolicyRule], model: str) -> bool:
    return all(rule.inline_agents and (rule.models is None or fits(rule.models, model)) for rule in rules.values())


async def _tenant(backend: Backend, caller: Caller, about: str | None) -> str:
    """Return the name that rules have for a tenant: that of what an operator asks about, else the caller's."""
    tag = caller.tenant if about is None else tenant_of(about)
    if not tag:
        return DEFAULT_TENANT
    tenant = await within_deadline(backend.store.tenants.by_tag(tag))
    return tag if tenant is None else tenant.name
