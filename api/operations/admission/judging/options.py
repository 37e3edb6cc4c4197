"""The options of an agent: a retry policy, schemas, a body for the provider; also such as its models cannot be sent."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import orjson

from palaver.errors import ConfigurationError, FieldError
from palaver.schemas.json_pointers import pointer
from palaver.schemas.model_options import JsonSchemaFormat
from palaver.schemas.models import AgentSpec
from palaver.schemas.schema_faults import answer_schema_faults, tool_schema_faults
from palaver.steps.retry import RetryPolicy
from palaver.vocabulary.limits import count_exceeded, limit_of

from ..faults import Fault, UnknownName
from ..tree import AgentModels, AgentTree


def option_faults(tree: AgentTree, policies: Collection[str]) -> Iterator[Fault]:
    """Yield the faults of the options of a tree's agent."""
    agent = tree.agent
    yield from _policy_faults(agent, tree.retry, policies)
    yield from _extra_body_faults(agent)
    yield from _schema_faults(agent)
    yield from _unsent_faults(agent, tree.models)


def _policy_faults(
    agent: AgentSpec, policy: RetryPolicy | ConfigurationError | None, policies: Collection[str]
) -> Iterator[Fault]:
    """Yield the faults of a retry policy. One that is a name still is none of ``policies``."""
    if isinstance(agent.retry, str):
        why = "is no policy of PALAVER_RETRY_POLICIES"
        yield UnknownName("/agent/retry", "unknown_policy", why, agent.retry, policies)
    elif isinstance(policy, ConfigurationError):
        yield FieldError(f"/agent/retry{policy.pointer}", "invalid_policy", policy.reason)


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


def _unsent_faults(agent: AgentSpec, models: AgentModels) -> Iterator[FieldError]:
    """Yield the faults of options that a model cannot be sent. Of models that think, the first one has the faults of
    all."""
    for model in models.of_each_protocol:
        for path, why in model.protocol.option_faults(agent, model.name):
            yield FieldError(pointer(("agent", *path)), "unsupported_option", why)
    thinking = next((model for model in models.all if model.provider.thinks), None)
    if thinking is not None and "thinking" not in (agent.extra_body or {}):
        for path, why in thinking.protocol.thinking_faults(agent, thinking.name):
            yield FieldError(pointer(("agent", *path)), "unsupported_option", why)
