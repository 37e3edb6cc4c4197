"""Anthropic's Messages, as Claude and the endpoints that imitate it speak them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from palaver.schemas.model_options import JsonSchemaFormat, NamedTool
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.protocols import MESSAGES, ProtocolName
from palaver.schemas.tool_schemas import fitted_tool

from ..port import CallSettings, Offer
from ..verbatim import elements, members
from . import blocks
from .answer import MessagesReader
from .breakpoints import EPHEMERAL, marked
from .turns import alternating

_VERSION: Final = "2023-06-01"
"""The version of the API; there has been no other since."""
_CHOICES: Final = {"required": "any"}
"""The protocol's names for choices of tools, where they differ from an agent's."""


class Messages:
    """The protocol."""

    name: ProtocolName = "anthropic"
    path = "/messages"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """The key, and the version of the API."""
        return {"anthropic-version": _VERSION} | ({"x-api-key": api_key} if api_key else {})

    def message(self, message: Message, opaque: str = "") -> bytes:
        """A message of the user or the assistant."""
        if opaque:
            return blocks.written(message.role, blocks.restored(opaque, message.text, {}))
        return blocks.written(message.role, blocks.content(message))

    def turn(self, asking: Message, results: Sequence[Message], opaque: str = "", *, place: int = 0) -> Sequence[bytes]:
        """Two messages: the calls, and all results."""
        calls = {call.id: blocks.call(call, place) for call in asking.tool_calls}
        asks = blocks.restored(opaque, asking.text, calls) if opaque else [*blocks.text(asking.text), *calls.values()]
        answers = [blocks.result(result, place) for result in results]
        return [blocks.written("assistant", asks), blocks.written("user", answers)]

    def plain(self, text: bytes) -> bytes:
        """Without thoughts, sources of texts, and whatever else is of no kind that is known here."""
        message: dict[str, Any] = orjson.loads(text)
        pairs = zip(elements(members(text.decode())["content"]), message["content"], strict=True)
        plain = (blocks.uncited(raw, block) for raw, block in pairs if block["type"] in blocks.PLAIN)
        return blocks.written(message["role"], plain)

    def in_words(self, text: bytes) -> bytes:
        """Texts in place of images and documents, those in results of tools included."""
        message: dict[str, Any] = orjson.loads(text)
        made = [blocks.in_words(block) for block in message["content"]]
        return text if made == message["content"] else blocks.written(message["role"], map(orjson.dumps, made))

    def parsed(self, text: bytes) -> Sequence[Message]:
        """Return the messages in it: its text and its calls, or each result."""
        message: dict[str, Any] = orjson.loads(text)
        messages, words, calls = [], [], []
        for block in message["content"]:
            match block["type"]:
                case "tool_result":
                    messages.append(Message(role="tool", content=blocks.words(block.get("content", ""))))
                case "tool_use":
                    arguments = orjson.dumps(block["input"]).decode()
                    calls.append(ToolCall(id=block["id"], name=block["name"], arguments=arguments))
                case "text":
                    words.append(block["text"])
                case "image" | "document":
                    words.append(blocks.words([block]))
        if words or calls:
            messages.append(Message(role=message["role"], content="\n".join(words), tool_calls=tuple(calls)))
        return messages

    def body(
        self, agent: AgentSpec, messages: Sequence[bytes], offers: Sequence[Offer], settings: CallSettings
    ) -> bytes:
        """The request's JSON."""
        turns = alternating(messages)
        if settings.cache:
            marked(turns)
        options = _options(agent, offers, settings)
        return orjson.dumps(options)[:-1] + b',"messages":[' + b",".join(turn.written() for turn in turns) + b"]}"

    def reader(self, *, max_calls: int) -> MessagesReader:
        """A reader for one answer."""
        return MessagesReader(max_calls=max_calls)


def _options(agent: AgentSpec, offers: Sequence[Offer], settings: CallSettings) -> dict[str, Any]:
    """The request but for its messages. A breakpoint behind the system message has the tools before it."""
    cached = {"cache_control": EPHEMERAL} if settings.cache else {}
    options: dict[str, Any] = {
        "model": agent.model_name,
        "max_tokens": agent.max_output_tokens or settings.max_output_tokens,
        "stream": agent.stream,
    }
    if instructions := agent.instructions.strip():
        options["system"] = [{"type": "text", "text": instructions, **cached}] if cached else instructions
    if offers:
        options["tools"] = [_offered(offer) for offer in offers]
        if not instructions:
            options["tools"][-1] |= cached
        options |= _choice(agent)
    options |= {name: value for name in ("temperature", "top_p") if (value := getattr(agent, name)) is not None}
    if agent.stop is not None:
        options["stop_sequences"] = agent.stop
    if settings.thinking is not None:
        options["thinking"] = _THINKING[settings.thinking]
    if output := _output(agent):
        options["output_config"] = output
    return options | (agent.extra_body or {})


_THINKING: Final[Mapping[str, Mapping[str, str]]] = {
    "adaptive": {"type": "adaptive"},
    "summarized": {"type": "adaptive", "display": "summarized"},
    "off": {"type": "disabled"},
}


def _choice(agent: AgentSpec) -> dict[str, Any]:
    choice: dict[str, Any] = {}
    if isinstance(agent.tool_choice, NamedTool):
        choice = {"type": "tool", "name": agent.tool_choice.name}
    elif agent.tool_choice is not None:
        choice = {"type": _CHOICES.get(agent.tool_choice, agent.tool_choice)}
    if agent.parallel_tool_calls is not None and choice.get("type") != "none":
        choice = {"type": "auto"} | choice | {"disable_parallel_tool_use": not agent.parallel_tool_calls}
    return {"tool_choice": choice} if choice else {}


def _output(agent: AgentSpec) -> dict[str, Any]:
    output: dict[str, Any] = {}
    if agent.reasoning_effort is not None:
        output["effort"] = agent.reasoning_effort
    if isinstance(agent.response_format, JsonSchemaFormat):
        output["format"] = {"type": "json_schema", "schema": MESSAGES.sent_schema(agent.response_format)}
    return output


def _offered(offer: Offer) -> dict[str, Any]:
    schema = fitted_tool({"type": "object", **offer.parameters}, MESSAGES.tools).schema
    tool = {"name": offer.name, "input_schema": orjson.Fragment(schema)}
    # An empty description is refused.
    return tool | ({"description": offer.description} if offer.description else {})
