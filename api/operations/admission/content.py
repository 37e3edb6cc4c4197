"""What the models of an agent can be sent: what a protocol has no place for is refused here, and never left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from palaver.config.carried import CARRIED, Carried, refused_while_thinking
from palaver.config.providers import Provider
from palaver.errors import Fault
from palaver.schemas.content import FilePart, ImagePart
from palaver.schemas.model_options import JsonSchemaFormat, ModelOptions, NamedTool
from palaver.schemas.models import AgentSpec, Message
from palaver.schemas.structured_output import output_schema_faults
from palaver.vocabulary.limits import beyond, most
from palaver.vocabulary.names import did_you_mean

from ...strict_json import pointer
from .schemas import shape_faults, size_fault

_EXTRA_BODY: Final = most("extra_body")


def option_faults(agent: AgentSpec, providers: Mapping[str, Provider]) -> Iterator[Fault]:
    """The options of an agent that contradict it, or that a model of it cannot be sent."""
    yield from _tool_choice_faults(agent)
    if isinstance(agent.response_format, JsonSchemaFormat):
        for path, message in _schema_faults(agent.response_format.json_schema):
            yield Fault(f"/agent/response_format/schema{path}", "invalid_schema", message)
    given = [name for name in ModelOptions.model_fields if getattr(agent, name) is not None]
    for model, protocol, carried in _protocols(agent, providers):
        lacks = f"cannot be sent to {model}: its provider speaks {protocol}, which has no such"
        for name in given:
            if name not in carried.options:
                yield _unsupported(f"/agent/{name}", f"{lacks} option")
        if agent.response_format is not None and agent.response_format.type not in carried.formats:
            yield _unsupported("/agent/response_format/type", f"{lacks} format")
        if agent.reasoning_effort is not None and agent.reasoning_effort not in carried.efforts:
            yield _unsupported("/agent/reasoning_effort", f"{lacks} effort")
        if agent.temperature is not None and agent.temperature > carried.hottest:
            takes = f"its provider speaks {protocol}, which takes at most {carried.hottest:g}"
            yield _unsupported("/agent/temperature", f"cannot be sent to {model}: {takes}")
        if agent.max_output_tokens is not None and agent.max_output_tokens < carried.least_output:
            takes = f"its provider speaks {protocol}, which takes at least {carried.least_output}"
            yield _unsupported("/agent/max_output_tokens", f"cannot be sent to {model}: {takes}")
        if not carried.lax and getattr(agent.response_format, "strict", None) is False:
            always = f"its provider speaks {protocol}, which always holds the model to the schema: leave it out"
            yield _unsupported("/agent/response_format/strict", f"cannot be sent to {model}: {always}")
        yield from _extra_body_faults(agent, carried)
    yield from _thinking_faults(agent, providers)


def content_faults(messages: Sequence[Message], agent: AgentSpec, providers: Mapping[str, Provider]) -> Iterator[Fault]:
    """Parts of ``messages`` that a model of the agent cannot be sent."""
    protocols = list(_protocols(agent, providers))
    asked = ((model, providers.get(model.partition("/")[0])) for model in agent.models)
    blind = next((model for model, provider in asked if provider is not None and not provider.fetches), None)
    for index, message in enumerate(messages):
        if isinstance(message.content, str):
            continue
        for place, part in enumerate(message.content):
            for model, protocol, carried in protocols:
                if what := carried.lacks(message.role, part):
                    why = f"{what} cannot be sent to {model}: its provider speaks {protocol}"
                    yield Fault(pointer(("input", index, "content", place)), "unsupported_content", why)
            if blind and isinstance(part, ImagePart | FilePart) and not part.inline:
                why = f"cannot be sent by its address to {blind}, whose provider is to fetch none: send a data: URL"
                yield Fault(pointer(("input", index, "content", place)), "unsupported_content", why)


def _protocols(agent: AgentSpec, providers: Mapping[str, Provider]) -> Iterator[tuple[str, str, Carried]]:
    """Each protocol that a model of the agent is spoken to in, with the first such model."""
    seen: set[str] = set()
    for model in agent.models:
        provider = providers.get(model.partition("/")[0])
        if provider is not None and provider.protocol not in seen:
            seen.add(provider.protocol)
            yield model, provider.protocol, CARRIED[provider.protocol]


def _schema_faults(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    found = [*size_fault(schema, "output_schema"), *shape_faults(schema)]
    yield from found or output_schema_faults(schema)


def _tool_choice_faults(agent: AgentSpec) -> Iterator[Fault]:
    named = [*agent.tools, *(tool.name for tool in agent.client_tools)]
    if isinstance(agent.tool_choice, NamedTool) and agent.tool_choice.name not in named:
        hint = did_you_mean(agent.tool_choice.name, named) or f"; they are: {', '.join(named[:50]) or 'none'}"
        yield Fault("/agent/tool_choice/name", "unknown_tool", f"is none of the agent's tools{hint}")
    elif agent.tool_choice == "required" and not named:
        yield Fault("/agent/tool_choice", "unknown_tool", "asks for a tool call, and the agent has no tools")


def _extra_body_faults(agent: AgentSpec, carried: Carried) -> Iterator[Fault]:
    if agent.extra_body is None:
        return
    size = len(orjson.dumps(agent.extra_body))
    if size > _EXTRA_BODY:
        beyond("extra_body")
        yield _unsupported("/agent/extra_body", f"has {size} bytes; at most {_EXTRA_BODY}")
    for name in agent.extra_body:
        if (written := name.casefold()) in carried.written:
            own = f": use {written} of the agent" if written in ModelOptions.model_fields else ""
            yield _unsupported(f"/agent/extra_body{pointer((name,))}", f"is a field that Palaver writes itself{own}")


def _thinking_faults(agent: AgentSpec, providers: Mapping[str, Provider]) -> Iterator[Fault]:
    """About the first model that its provider's table tells to think, unless the agent says itself whether it does."""
    if "thinking" in (agent.extra_body or {}):
        return
    for model in agent.models:
        provider = providers.get(model.partition("/")[0])
        if provider is not None and provider.thinks:
            for where, takes in refused_while_thinking(agent):
                why = (
                    f"cannot be sent to {model}: its provider's table has thinking on, and a model that thinks {takes}"
                )
                yield _unsupported(f"/agent{where}", why)
            return


def _unsupported(where: str, why: str) -> Fault:
    return Fault(where, "unsupported_option", why)
