"""What an agent must be beyond its shape: models, tools and policies that are known, and approvals that apply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from palaver.config.providers import Provider
from palaver.errors import ConfigurationError, Fault
from palaver.schemas.endpoints import INLINE
from palaver.schemas.models import AgentSpec
from palaver.steps.policies import policy_of_agent
from palaver.steps.retry import RetryPolicy
from palaver.vocabulary.names import did_you_mean

from ..backend import Backend
from ..catalog import Known, KnownTools
from ..secrets import NO_KEY
from .content import option_faults
from .schemas import schema_faults

AGENT_PROBLEMS: Final = (
    "unknown_provider", "unknown_tool", "duplicate_tool", "invalid_schema", "unknown_policy", "invalid_policy",
    "unsupported_option", "no_workers", "endpoint_not_allowed", "no_secret_key", "secrets_full",
)  # fmt: skip
"""The codes of what may be wrong with an agent."""


def agent_faults(agent: AgentSpec, backend: Backend, known: Known) -> Iterator[Fault]:
    """Everything that is wrong with an agent, at its place in a body that has it as ``agent``.

    ``known`` is what the workers have.
    """
    yield from _endpoint_faults(agent, backend)
    providers = reached_by(agent, backend)
    yield from _provider_faults(agent, providers, known.providers)
    yield from _tool_faults(agent, known.tools)
    yield from _client_tool_faults(agent)
    yield from _approval_faults(agent, known.tools)
    yield from _policy_faults(agent, backend.policies)
    yield from option_faults(agent, providers)


def reached_by(agent: AgentSpec, backend: Backend) -> Mapping[str, Provider]:
    """The providers that models of the agent may be of: those of the table, and that of its own endpoint."""
    if agent.endpoint is None:
        return backend.providers
    return {**backend.providers, agent.endpoint.name: Provider.inline(agent.endpoint)}


def _endpoint_faults(agent: AgentSpec, backend: Backend) -> Iterator[Fault]:
    endpoint, hosts = agent.endpoint, backend.settings.inline_provider_hosts
    if endpoint is None:
        return
    if not endpoint.allowed_by(hosts):
        allowed = f"it allows: {', '.join(hosts)}" if hosts else "it is not set"
        why = f"is at a host that PALAVER_INLINE_PROVIDER_HOSTS does not allow; {allowed}"
        yield Fault("/agent/endpoint/base_url", "endpoint_not_allowed", why)
    if not any(provider == endpoint.name for _, provider, _ in _models(agent)):
        why = f"is asked for no model: call one of them {INLINE}/NAME"
        yield Fault("/agent/endpoint", "endpoint_not_allowed", why)
    if endpoint.api_key is not None and not backend.store.vault.usable:
        yield Fault("/agent/endpoint/api_key", "no_secret_key", NO_KEY)


def _provider_faults(
    agent: AgentSpec, providers: Mapping[str, Provider], callable_ones: frozenset[str] | None
) -> Iterator[Fault]:
    for where, provider, _ in _models(agent):
        if provider == INLINE:
            yield Fault(where, "unknown_provider", "is asked at an endpoint of the agent's own: give it one")
        elif provider not in providers:
            hint = did_you_mean(provider, providers) or f"; there are: {_listed(providers)}"
            yield Fault(where, "unknown_provider", f"names a provider that is not configured{hint}")
        elif callable_ones and provider not in callable_ones:
            table = "PALAVER_INLINE_PROVIDER_HOSTS" if provider.startswith(f"{INLINE}:") else "PALAVER_PROVIDERS"
            why = f"their {table} lacks it, or they lack its key; they can call: {_listed(callable_ones)}"
            yield Fault(where, "unknown_provider", f"names a provider that no worker can call: {why}")


def _models(agent: AgentSpec) -> Iterator[tuple[str, str, str]]:
    """Where each model of the agent stands, its provider and its name there."""
    for index, model in enumerate(agent.models):
        provider, _, name = model.partition("/")
        yield f"/agent/fallbacks/{index - 1}" if index else "/agent/model", provider, name


def price_faults(agent: AgentSpec, providers: Mapping[str, Provider]) -> Iterator[Fault]:
    """The models of an agent whose use cannot be counted in dollars."""
    for where, provider, name in _models(agent):
        if provider in providers and providers[provider].price(name) is None:
            needs = f"a budget in dollars needs one, in [providers.{provider}.prices] of PALAVER_PROVIDERS"
            yield Fault(where, "unknown_price", f"has no price: {needs}")


def _policy_faults(agent: AgentSpec, policies: Mapping[str, RetryPolicy]) -> Iterator[Fault]:
    if isinstance(agent.retry, str):
        if agent.retry not in policies:
            hint = did_you_mean(agent.retry, policies) or f"; there are: {', '.join(sorted(policies)) or 'none'}"
            yield Fault("/agent/retry", "unknown_policy", f"is no policy of PALAVER_RETRY_POLICIES{hint}")
    elif agent.retry is not None:
        try:
            policy_of_agent(agent.retry)
        except ConfigurationError as error:
            yield Fault(f"/agent/retry{error.pointer}", "invalid_policy", error.reason)


def resolved(agent: AgentSpec | None, policies: Mapping[str, RetryPolicy]) -> AgentSpec | None:
    """The agent with its retry policy in the place of the policy's name."""
    if agent is None or not isinstance(agent.retry, str):
        return agent
    return agent.model_copy(update={"retry": policies[agent.retry].dump()})


def _tool_faults(agent: AgentSpec, tools: KnownTools) -> Iterator[Fault]:
    before: set[str] = set()
    for index, name in enumerate(agent.tools):
        if name not in tools:
            hint = did_you_mean(name, tools) or f"; there are: {_listed(tools)}"
            yield Fault(f"/agent/tools/{index}", "unknown_tool", f"is a tool that no worker has{hint}")
        elif name in before:
            yield Fault(f"/agent/tools/{index}", "duplicate_tool", "is named before")
        before.add(name)


def _client_tool_faults(agent: AgentSpec) -> Iterator[Fault]:
    servers = frozenset(agent.tools)
    before: set[str] = set()
    for index, tool in enumerate(agent.client_tools):
        where = f"/agent/client_tools/{index}"
        if tool.name in servers:
            yield Fault(f"{where}/name", "duplicate_tool", "is the name of one of the agent's tools: rename it")
        elif tool.name in before:
            yield Fault(f"{where}/name", "duplicate_tool", "is named before")
        before.add(tool.name)
        for path, message in schema_faults(tool.parameters):
            yield Fault(f"{where}/parameters{path}", "invalid_schema", message)


def _approval_faults(agent: AgentSpec, tools: KnownTools) -> Iterator[Fault]:
    """A pattern with a slip of the pen in it would let calls through that somebody wants to see."""
    servers = frozenset(agent.tools)
    known = [name for name in agent.tools if name in tools]
    require, exempt = agent.approvals.require, agent.approvals.exempt
    for field, patterns in (("require", () if isinstance(require, str) else require), ("exempt", exempt)):
        for index, pattern in enumerate(patterns):
            if pattern not in servers and not any(fnmatchcase(name, pattern) for name in agent.tools):
                hint = did_you_mean(pattern, known) or f"; they are: {', '.join(known) or 'none'}"
                where = f"/agent/approvals/{field}/{index}"
                yield Fault(where, "unknown_tool", f"fits none of the agent's tools{hint}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:50]) or "none (see PALAVER_PROVIDERS)"
