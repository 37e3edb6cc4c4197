"""The options of an agent: a choice of tools, a retry policy, a body for the provider, schemas."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import orjson

from palaver.errors import ConfigurationError, FieldError
from palaver.operations.admission.faults import Fault, UnknownName
from palaver.operations.admission.tree import AgentTree
from palaver.schemas.model_options import JsonSchemaFormat, NamedTool
from palaver.schemas.models import AgentSpec
from palaver.schemas.schema_faults import answer_schema_faults, tool_schema_faults
from palaver.vocabulary.limits import count_exceeded, limit_of


def agent_option_faults(tree: AgentTree, policies: Collection[str]) -> Iterator[Fault]:
    """Yield the faults of the options of a tree's agent."""
    agent = tree.agent
    yield from _tool_choice_faults(agent)
    yield from _policy_faults(tree, policies)
    yield from _extra_body_faults(agent)
    yield from _schema_faults(agent)


def _tool_choice_faults(agent: AgentSpec) -> Iterator[Fault]:
    named = [*agent.tools, *(tool.name for tool in agent.client_tools)]
    if isinstance(agent.tool_choice, NamedTool) and agent.tool_choice.name not in named:
        where, why = "/agent/tool_choice/name", "is none of the agent's tools"
        yield UnknownName(where, "unknown_tool", why, agent.tool_choice.name, named, own=True)
    elif agent.tool_choice == "required" and not named and not agent.mcp_servers:
        yield FieldError("/agent/tool_choice", "unknown_tool", "asks for a tool call, and the agent has no tools")


def _policy_faults(tree: AgentTree, policies: Collection[str]) -> Iterator[Fault]:
    """Yield the faults of a retry policy. One that is a name still is none of ``policies``."""
    given = tree.agent.retry
    if isinstance(given, str):
        why = "is no policy of PALAVER_RETRY_POLICIES"
        yield UnknownName("/agent/retry", "unknown_policy", why, given, policies)
    elif isinstance(tree.retry, ConfigurationError):
        yield FieldError(f"/agent/retry{tree.retry.pointer}", "invalid_policy", tree.retry.reason)
    elif isinstance(given, dict) and "tools" in given and tree.agent.version is None:
        # An agent that an older version has stored keeps it, without effect.
        yield FieldError("/agent/retry/tools", "invalid_policy", "is no field: a tool declares its own, @tool(retry=…)")


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
