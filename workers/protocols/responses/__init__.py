"""OpenAI's Responses. Nothing is left with the provider: each request brings the whole conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from palaver.schemas.model_options import JsonSchemaFormat, NamedTool
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.protocols import RESPONSES, ProtocolName
from palaver.schemas.tool_schemas import fitted_tool

from ..port import CallSettings, Offer
from . import items
from .answer import ResponsesReader

_SAME: Final = ("temperature", "top_p", "max_output_tokens")
"""Options that are called here as they are on an agent."""
_ENCRYPTED: Final = "reasoning.encrypted_content"


class Responses:
    """The protocol."""

    name: ProtocolName = "responses"
    path = "/responses"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """The key as a bearer token."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def message(self, message: Message, opaque: str = "") -> bytes:
        """Items, separated by commas: a message of the user or the assistant, and the reasoning before it."""
        return b",".join(items.restored(opaque, message.text, {})) if opaque else items.message_item(message)

    def turn(self, asking: Message, results: Sequence[Message], opaque: str = "", *, place: int = 0) -> Sequence[bytes]:
        """Return the model's text with its calls and the reasoning before each; then every result."""
        calls = {call.id: items.call(call, place) for call in asking.tool_calls}
        fields = opaque or items.NOTHING
        asks = items.restored(fields, asking.text, calls)
        return [b",".join(asks), *(items.result(result, place) for result in results)]

    def plain(self, text: bytes) -> bytes:
        """Without its reasoning."""
        if items.REASONING not in text:
            return text
        return b",".join(raw.encode() for raw in items.split(text) if orjson.loads(raw).get("type") != "reasoning")

    def in_words(self, text: bytes) -> bytes:
        """Texts in place of images and files, those in results of tools included."""
        raws = items.split(text)
        made = [items.in_words(orjson.loads(raw)) for raw in raws]
        return b",".join(
            raw.encode() if item is None else orjson.dumps(item) for raw, item in zip(raws, made, strict=True)
        )

    def parsed(self, text: bytes) -> Sequence[Message]:
        """Return the messages in the items: a text and calls, or a result."""
        messages, words, calls, role = [], [], [], "assistant"
        for item in orjson.loads(b"[%b]" % text):
            match item.get("type"):
                case None:
                    role = item["role"]
                    words.append(items.words(item["content"]))
                case "function_call":
                    calls.append(ToolCall(id=item["call_id"], name=item["name"], arguments=item["arguments"]))
                case "function_call_output":
                    messages.append(Message(role="tool", content=items.words(item["output"])))
        if words or calls:
            fields: dict[str, Any] = {"role": role, "content": "\n".join(words), "tool_calls": tuple(calls)}
            messages.append(Message(**fields))
        return messages

    def body(
        self, agent: AgentSpec, messages: Sequence[bytes], offers: Sequence[Offer], settings: CallSettings
    ) -> bytes:
        """The request's JSON."""
        return orjson.dumps(_options(agent, offers, settings))[:-1] + b',"input":[' + b",".join(messages) + b"]}"

    def reader(self, *, max_calls: int) -> ResponsesReader:
        """A reader for one answer."""
        return ResponsesReader(max_calls=max_calls)


def _options(agent: AgentSpec, offers: Sequence[Offer], settings: CallSettings) -> dict[str, Any]:
    """The request but for its items."""
    options: dict[str, Any] = {
        "model": agent.model_name,
        "stream": agent.stream,
        "store": False,
        "include": [_ENCRYPTED],
    }
    options |= {name: value for name in _SAME if (value := getattr(agent, name)) is not None}
    if settings.max_output_tokens:
        options.setdefault("max_output_tokens", settings.max_output_tokens)
    if agent.instructions:
        options["instructions"] = agent.instructions
    if offers:
        options["tools"] = [_offered(offer) for offer in offers]
        if agent.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = agent.parallel_tool_calls
        if isinstance(agent.tool_choice, NamedTool):
            options["tool_choice"] = {"type": "function", "name": agent.tool_choice.name}
        elif agent.tool_choice is not None:
            options["tool_choice"] = agent.tool_choice
    reasoning = {"effort": agent.reasoning_effort, "summary": "auto" if settings.thinking == "summarized" else None}
    if reasoning_options := {name: value for name, value in reasoning.items() if value is not None}:
        options["reasoning"] = reasoning_options
    if agent.response_format is not None:
        options["text"] = {"format": _format(agent)}
    return options | (agent.extra_body or {})


def _format(agent: AgentSpec) -> dict[str, Any]:
    response_format = agent.response_format
    if not isinstance(response_format, JsonSchemaFormat):
        return {"type": response_format.type} if response_format else {}
    fields = {
        "type": response_format.type,
        "name": response_format.name,
        "schema": RESPONSES.sent_schema(response_format),
        "strict": response_format.strict,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _offered(offer: Offer) -> dict[str, Any]:
    """A tool. Strict it would be by default here, which few schemas are made for."""
    parameters = orjson.Fragment(fitted_tool(offer.parameters, RESPONSES.tools).schema)
    tool = {"type": "function", "name": offer.name, "parameters": parameters, "strict": False}
    return tool | ({"description": offer.description} if offer.description else {})
