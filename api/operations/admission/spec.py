"""The spec of an agent: models, tools and policies that are known, approvals that apply, options that can be sent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import orjson

from palaver.errors import ConfigurationError, FieldError
from palaver.schemas.endpoints import INLINE
from palaver.schemas.json_pointers import pointer
from palaver.schemas.mcp_servers import may_fit
from palaver.schemas.model_options import JsonSchemaFormat, NamedTool
from palaver.schemas.models import AgentSpec
from palaver.schemas.schema_faults import answer_schema_faults, tool_schema_faults
from palaver.steps.policies import policy_of_agent
from palaver.steps.retry import RetryPolicy
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.names import did_you_mean

from ..catalog import KnownTools
from .resolution import AgentModels, KnownNames, pointer_of

AGENT_PROBLEMS: Final = (
    "unknown_provider", "unknown_tool", "duplicate_tool", "invalid_schema", "unknown_policy", "invalid_policy",
    "unsupported_option", "endpoint_not_allowed", "no_secret_key", "secrets_full", "unknown_agent", "policy_violation",
    "agent_not_allowed", "second_person_required",
)  # fmt: skip
"""The codes of the problems that an agent may have."""
_LISTED: Final = 50
"""Names that a fault lists."""


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A name that is unknown; one of the known names may have been meant."""

    pointer: str
    code: str
    why: str
    name: str
    known: Collection[str]
    own: bool = False
    """True if the known names are the agent's own, which are listed in its order."""
    nothing: str = "none"
    """The text in the place of the list if no name is known."""

    def as_fault(self) -> FieldError:
        """Return the fault, with a hint."""
        hint = did_you_mean(self.name, self.known)
        if not hint:
            names = [*self.known] if self.own else sorted(self.known)
            hint = f"; {'they' if self.own else 'there'} are: {_listed(names) or self.nothing}"
        return FieldError(self.pointer, self.code, f"{self.why}{hint}")


def faults(agent: AgentSpec, known: KnownNames) -> Iterator[FieldError | UnknownName]:
    """Yield the faults of an agent, at their places in a body that has it as ``agent``."""
    yield from _version_faults(agent)
    yield from _endpoint_faults(agent, known)
    yield from _provider_faults(agent, known)
    yield from _tool_faults(agent, known.tools)
    yield from _client_tool_faults(agent)
    yield from _approval_faults(agent, known.tools)
    yield from _tool_choice_faults(agent)
    yield from _policy_faults(agent, known.policies)
    yield from _extra_body_faults(agent)
    yield from _schema_faults(agent)
    yield from _option_faults(agent, known.models)


def kept_faults(name: str, agent: AgentSpec) -> Iterator[FieldError]:
    """Yield the faults that an agent has only if it is to be kept on the server under that name."""
    if agent.name not in (None, name):
        yield FieldError("/agent/name", "validation_error", "is not the name in the path: leave it out")
    if agent.endpoint is not None and agent.endpoint.api_key is not None:
        why = "is not kept with an agent: set the provider up in PALAVER_PROVIDERS, or give the key with each run"
        yield FieldError("/agent/endpoint/api_key", "endpoint_not_allowed", why)
    if len(agent.model_dump_json().encode()) > limit_of("agent_bytes"):
        count_exceeded("agent_bytes")
        yield FieldError("/agent", "validation_error", f"has more than {limit_of('agent_bytes')} bytes as JSON")


def ordered_faults(agent: AgentSpec | str | None, pointer: str) -> Iterator[FieldError]:
    """Yield the faults that an agent at ``pointer`` has only if runs of it begin later: what is kept until then is not
    sealed."""
    if isinstance(agent, AgentSpec) and agent.endpoint is not None and agent.endpoint.api_key is not None:
        why = "is not kept with an order: set the provider up in PALAVER_PROVIDERS"
        yield FieldError(f"{pointer}/endpoint/api_key", "endpoint_not_allowed", why)


def missing(conversation_id: str | None) -> Iterator[FieldError]:
    """Yield a fault if there is no agent, and no conversation that could have one."""
    if conversation_id is None:
        yield FieldError("/agent", "no_agent", "is required when there is no conversation_id")


def secret_faults(secrets: object, where: str, *, seals: bool) -> Iterator[FieldError]:
    """Yield a fault if there are ``secrets`` and no key to encrypt them with."""
    if secrets and not seals:
        yield FieldError(where, "no_secret_key", "cannot be kept: PALAVER_SECRET_KEY is not set for the API")


def _version_faults(agent: AgentSpec) -> Iterator[FieldError]:
    if agent.version is not None and "version" in agent.model_fields_set:
        why = (
            "is given by the server: name its agents as NAME or NAME@VERSION in the place of this one, or leave it out"
        )
        yield FieldError("/agent/version", "unknown_agent", why)


def _endpoint_faults(agent: AgentSpec, known: KnownNames) -> Iterator[FieldError]:
    endpoint, hosts = agent.endpoint, known.endpoint_hosts
    if endpoint is None:
        return
    if not endpoint.allowed_by(hosts):
        allowed = f"it allows: {', '.join(hosts)}" if hosts else "it is not set"
        why = f"is at a host that PALAVER_INLINE_PROVIDER_HOSTS does not allow; {allowed}"
        yield FieldError("/agent/endpoint/base_url", "endpoint_not_allowed", why)
    if not any(name.partition("/")[0] == endpoint.name for name in agent.models):
        why = f"is asked for no model: call one of them {INLINE}/NAME"
        yield FieldError("/agent/endpoint", "endpoint_not_allowed", why)
    yield from secret_faults(endpoint.api_key, "/agent/endpoint/api_key", seals=known.seals)


def _provider_faults(agent: AgentSpec, known: KnownNames) -> Iterator[FieldError | UnknownName]:
    callable_ones = known.callable_providers
    for index, name in enumerate(agent.models):
        where, provider = pointer_of(index), name.partition("/")[0]
        if provider == INLINE:
            yield FieldError(where, "unknown_provider", "is asked at an endpoint of the agent's own: give it one")
        elif provider not in known.models.providers:
            yield UnknownName(
                where, "unknown_provider", "names a provider that is not configured", provider, known.models.providers,
                nothing="none (see PALAVER_PROVIDERS)",
            )  # fmt: skip
        elif callable_ones and provider not in callable_ones:
            table = "PALAVER_INLINE_PROVIDER_HOSTS" if provider.startswith(f"{INLINE}:") else "PALAVER_PROVIDERS"
            why = f"their {table} lacks it, or they lack its key; they can call: {_listed(sorted(callable_ones))}"
            yield FieldError(where, "unknown_provider", f"names a provider that no worker can call: {why}")


def _tool_faults(agent: AgentSpec, tools: KnownTools | None) -> Iterator[FieldError | UnknownName]:
    before: set[str] = set()
    for index, name in enumerate(agent.tools):
        if tools is not None and name not in tools and name not in agent.subagents:
            yield UnknownName(f"/agent/tools/{index}", "unknown_tool", "is a tool that no worker has", name, tools)
        elif name in before:
            yield FieldError(f"/agent/tools/{index}", "duplicate_tool", "is named before")
        before.add(name)


def _client_tool_faults(agent: AgentSpec) -> Iterator[FieldError]:
    servers, before = frozenset(agent.tools), set[str]()
    for index, tool in enumerate(agent.client_tools):
        where = f"/agent/client_tools/{index}/name"
        if tool.name in servers:
            yield FieldError(where, "duplicate_tool", "is the name of one of the agent's tools: rename it")
        elif tool.name in before:
            yield FieldError(where, "duplicate_tool", "is named before")
        before.add(tool.name)


def _approval_faults(agent: AgentSpec, tools: KnownTools | None) -> Iterator[FieldError | UnknownName]:
    """Yield a fault for each pattern that fits no tool: one with a typing error would let calls through without
    approval. Which tools a server of the agent's own has nobody knows yet."""
    servers = frozenset(agent.tools)
    known = [name for name in agent.tools if tools is None or name in tools or name in agent.subagents]
    approvals = agent.approvals
    require = () if isinstance(approvals.require, str) else approvals.require
    lists = {
        "require": require,
        "exempt": approvals.exempt,
        "exempt_alone": approvals.exempt_alone,
        "second_person": approvals.second_person,
    }
    for field, patterns in lists.items():
        for index, pattern in enumerate(patterns):
            if pattern in servers or any(may_fit(pattern, label) for label in agent.mcp_servers):
                continue
            if not any(fnmatchcase(name, pattern) for name in agent.tools):
                where, why = f"/agent/approvals/{field}/{index}", "fits none of the agent's tools"
                yield UnknownName(where, "unknown_tool", why, pattern, known, own=True)


def _tool_choice_faults(agent: AgentSpec) -> Iterator[FieldError | UnknownName]:
    named = [*agent.tools, *(tool.name for tool in agent.client_tools)]
    if isinstance(agent.tool_choice, NamedTool) and agent.tool_choice.name not in named:
        where, why = "/agent/tool_choice/name", "is none of the agent's tools"
        yield UnknownName(where, "unknown_tool", why, agent.tool_choice.name, named, own=True)
    elif agent.tool_choice == "required" and not named and not agent.mcp_servers:
        yield FieldError("/agent/tool_choice", "unknown_tool", "asks for a tool call, and the agent has no tools")


def _policy_faults(agent: AgentSpec, policies: Mapping[str, RetryPolicy]) -> Iterator[FieldError | UnknownName]:
    if isinstance(agent.retry, str):
        if agent.retry not in policies:
            why = "is no policy of PALAVER_RETRY_POLICIES"
            yield UnknownName("/agent/retry", "unknown_policy", why, agent.retry, policies)
    elif agent.retry is not None:
        try:
            policy_of_agent(agent.retry)
        except ConfigurationError as error:
            yield FieldError(f"/agent/retry{error.pointer}", "invalid_policy", error.reason)


def _extra_body_faults(agent: AgentSpec) -> Iterator[FieldError]:
    size = 0 if agent.extra_body is None else len(orjson.dumps(agent.extra_body))
    if size > limit_of("extra_body"):
        count_exceeded("extra_body")
        yield FieldError(
            "/agent/extra_body", "unsupported_option", f"has {size} bytes; at most {limit_of('extra_body')}"
        )


def _schema_faults(agent: AgentSpec) -> Iterator[FieldError]:
    for index, tool in enumerate(agent.client_tools):
        for path, why in tool_schema_faults(tool.parameters):
            yield FieldError(f"/agent/client_tools/{index}/parameters{path}", "invalid_schema", why)
    if isinstance(agent.response_format, JsonSchemaFormat):
        for path, why in answer_schema_faults(agent.response_format.json_schema):
            yield FieldError(f"/agent/response_format/schema{path}", "invalid_schema", why)


def _option_faults(agent: AgentSpec, models: AgentModels) -> Iterator[FieldError]:
    """Yield the faults of options that a model cannot be sent. Of models that think, the first one has the faults of
    all."""
    for model in models.of_each_protocol:
        for path, why in model.protocol.option_faults(agent, model.name):
            yield FieldError(pointer(("agent", *path)), "unsupported_option", why)
    thinking = next((model for model in models.all if model.provider.thinks), None)
    if thinking is not None and "thinking" not in (agent.extra_body or {}):
        for path, why in thinking.protocol.thinking_faults(agent, thinking.name):
            yield FieldError(pointer(("agent", *path)), "unsupported_option", why)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED])
