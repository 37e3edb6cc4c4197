"""The lookup of all that a request is judged by, done once: the models of its agent, and the names that it may use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from palaver.config.providers import Provider
from palaver.schemas.models import AgentSpec
from palaver.schemas.protocols import ProtocolRules
from palaver.steps.retry import RetryPolicy

from ..backend import Backend, within_deadline
from ..catalog import KnownTools


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


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that an agent may use, and its models."""

    models: AgentModels
    policies: Mapping[str, RetryPolicy]
    endpoint_hosts: Collection[str]
    """The hosts at which an agent may have an endpoint of its own."""
    mcp_hosts: Collection[str]
    """The hosts at which an agent may have MCP servers of its own."""
    seals: bool
    """True if there is a key to encrypt secrets with."""
    tools: KnownTools | None
    """The tools of the workers; None if no worker has told of any yet, or the agent has none."""
    callable_providers: frozenset[str] | None
    """The providers that a worker can call; empty if none has reported lately, None if some do not report theirs."""


async def look_up(agent: AgentSpec | None, backend: Backend) -> KnownNames:
    """Return the names that ``agent`` may use. Only those that it needs are read from the store.

    Raises:
        StoreUnavailable: the store took too long.
    """
    tools, models = (agent.tools, agent.models) if agent is not None else ((), ())
    servers = agent is not None and bool(agent.mcp_servers)
    tools = tuple(name for name in tools if agent is None or name not in agent.subagents)
    providers = [model.partition("/")[0] for model in models]
    return KnownNames(
        models=resolve(agent, backend.providers),
        policies=backend.policies,
        endpoint_hosts=backend.settings.inline_provider_hosts,
        mcp_hosts=backend.settings.inline_mcp_hosts,
        seals=backend.store.vault.usable,
        tools=await within_deadline(backend.catalog.tools(tools)) if tools or servers else None,
        callable_providers=await within_deadline(backend.catalog.providers(providers)),
    )


def resolve(agent: AgentSpec | None, table: Mapping[str, Provider]) -> AgentModels:
    """Return the models of an agent; none if there is no agent."""
    if agent is None:
        return AgentModels(table)
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
