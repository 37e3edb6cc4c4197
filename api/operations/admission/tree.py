"""The agents of a request as a tree: one, and those that it has as tools, each with all that its names stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from palaver.config.providers import Provider
from palaver.errors import ConfigurationError
from palaver.schemas.models import AgentSpec, Budget
from palaver.schemas.protocols import ProtocolRules
from palaver.steps.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model of an agent, with its provider and the protocol that the provider speaks."""

    pointer: str
    """Its place in a body that has the agent as ``agent``."""
    name: str
    """The name that the agent has for it: behind the name of its provider."""
    provider: Provider
    protocol: ProtocolRules


@dataclass(frozen=True, slots=True)
class AgentModels:
    """The models of an agent, in the order in which they are called; models of unknown providers are left out."""

    providers: Mapping[str, Provider]
    """All providers that an agent may name: those of the table, and that of its own endpoint."""
    all: Sequence[ResolvedModel] = ()
    of_each_protocol: Sequence[ResolvedModel] = ()
    """The first model of each protocol: it has the faults that all others of its protocol would have."""


NO_MODELS = AgentModels({})


@dataclass(frozen=True, slots=True, eq=False)
class AgentTree:
    """An agent and those below it."""

    agent: AgentSpec
    """The whole agent, with those below within it."""
    models: AgentModels
    retry: RetryPolicy | ConfigurationError | None = None
    """Its policy for retries, or what is wrong with that; None if it has none, or names one that nobody knows."""
    place: str = ""
    """The place in the request of the tool that leads to it; empty for the one that the request is about."""
    budget: Budget | None = None
    """The most that each of its runs may use, as the agent above says."""
    below: Mapping[str, AgentTree] = field(default_factory=dict)
    """The agents among its tools, by the names that its model has for them."""

    @property
    def nodes(self) -> Sequence[AgentTree]:
        """This one, and all below it, each before those below itself."""
        nodes = [self]
        for tree in self.below.values():
            nodes += tree.nodes
        return nodes


def standing_tree(agent: AgentSpec, table: Mapping[str, Provider], budget: Budget | None = None) -> AgentTree:
    """Return the tree of an agent that was admitted before: its names were looked up then."""
    below = {name: standing_tree(each.agent, table, each.budget) for name, each in agent.subagents.items()}
    models = resolve(agent, table)
    retry = None if agent.retry is None else RetryPolicy.parse(agent.retry)
    return AgentTree(agent, models, retry, budget=budget, below=below)


def resolve(agent: AgentSpec, table: Mapping[str, Provider]) -> AgentModels:
    """Return the models of an agent, with their providers."""
    own = agent.endpoint
    providers = table if own is None else {**table, own.name: Provider.inline(own)}
    models = [
        ResolvedModel(pointer_of(index), name, provider, provider.rules)
        for index, name in enumerate(agent.models)
        if (provider := providers.get(name.partition("/")[0])) is not None
    ]
    first: dict[str, ResolvedModel] = {}
    for model in models:
        first.setdefault(model.protocol.name, model)
    return AgentModels(providers, models, tuple(first.values()))


def pointer_of(index: int) -> str:
    """Return the pointer to a model in a body, by its place in ``AgentSpec.models``."""
    return f"/agent/fallbacks/{index - 1}" if index else "/agent/model"
