"""The agents of a request as a tree: one, and those that it has as tools, each with all that its names stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from palaver.config.providers import Provider
from palaver.errors import ConfigurationError
from palaver.schemas.models import AgentSpec, Budget
from palaver.schemas.protocols import ProtocolRules
from palaver.steps.policies import policy_of_agent
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


@dataclass(frozen=True, eq=False)
class AgentTree:
    """A whole agent, seen as a tree of it and those below it. What they stand for is found once, when it is asked
    for."""

    agent: AgentSpec
    """The whole agent, with those below within it."""
    providers: Mapping[str, Provider]
    """The table of the operator, to which an endpoint of its own comes."""
    place: str = ""
    """The place in the request of the tool that leads to it; empty for the one that the request is about."""
    budget: Budget | None = None
    """The most that each of its runs may use, as the agent above says."""
    writers: frozenset[str] = frozenset()
    """The names of those who wrote its agents, '' for none: the caller whose request has it, and those who put on the
    server what it names."""

    @cached_property
    def below(self) -> Mapping[str, AgentTree]:
        """The agents among its tools, by the names that its model has for them."""
        tools, within = self.agent.tools, self.agent.subagents
        return {
            name: AgentTree(each.agent, self.providers, self.place or f"/agent/tools/{tools.index(name)}", each.budget)
            for name, each in within.items()
        }

    @property
    def nodes(self) -> Sequence[AgentTree]:
        """This one, and all below it, each before those below itself."""
        nodes = [self]
        for tree in self.below.values() if self.agent.subagents else ():
            nodes += tree.nodes
        return nodes

    @cached_property
    def models(self) -> AgentModels:
        """Its models, with their providers."""
        own = self.agent.endpoint
        providers = self.providers if own is None else {**self.providers, own.name: Provider.inline(own)}
        models = [
            ResolvedModel(pointer_of(index), name, provider, provider.rules)
            for index, name in enumerate(self.agent.models)
            if (provider := providers.get(name.partition("/")[0])) is not None
        ]
        first: dict[str, ResolvedModel] = {}
        for model in models:
            first.setdefault(model.protocol.name, model)
        return AgentModels(providers, models, tuple(first.values()))

    @cached_property
    def retry(self) -> RetryPolicy | ConfigurationError | None:
        """Its policy for retries, or what is wrong with that; None if it has none, or names one that is unknown."""
        if self.agent.retry is None or isinstance(self.agent.retry, str):
            return None
        try:
            return policy_of_agent(self.agent.retry)
        except ConfigurationError as error:
            return error


def pointer_of(index: int) -> str:
    """Return the pointer to a model in a body, by its place in ``AgentSpec.models``."""
    return f"/agent/fallbacks/{index - 1}" if index else "/agent/model"
