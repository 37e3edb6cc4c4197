"""OpenAI's chat completions, as most providers and local servers speak them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from palaver.schemas.arguments import as_json
from palaver.schemas.content import FilePart, ImagePart, Part, text_of
from palaver.schemas.model_options import JsonSchemaFormat, NamedTool, ResponseFormat, ToolChoice
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.protocols import CHAT_COMPLETIONS, ProtocolName
from palaver.schemas.tool_schemas import fitted_tool

from ..port import LEFT_OUT, CallSettings, Offer
from .answer import Completion
from .breakpoints import marked, system_message
from .opaque import EXTRA, restored

_LONGEST_NAME: Final = 64
_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{_LONGEST_NAME}}}")
_SAME: Final = ("temperature", "top_p", "seed", "stop", "reasoning_effort")
"""Options that are called here as they are on an agent."""
_OF_A_MESSAGE: Final = frozenset(("role", "content", "tool_calls", "tool_call_id"))
_SHOWN: Final = {"type": "text", "text": "[Automatic note] What these tool results show as [image] or [file]:"}
"""Before images and files of tools. A message of the user has them, as OpenAI takes nothing but text from a tool, and
most other servers follow it."""
_UNNAMED: Final = "file"
"""A file's name where it has none: OpenAI wants one."""
_SHORT: Final = re.compile(r"[A-Za-z0-9]{9}")
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that OpenAI takes in no name; a conversation with such a name would be refused for ever."""


class ChatCompletions:
    """The protocol; with ``short_ids`` for providers that take no ids of calls but those of nine letters and digits."""

    name: ProtocolName = "chat_completions"
    path = "/chat/completions"

    def __init__(self, *, short_ids: bool = False) -> None:
        self._short_ids = short_ids

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """The key as a bearer token."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def message(self, message: Message, opaque: str = "") -> bytes:
        """A message of the user or the assistant."""
        fields: dict[str, Any] = {"role": message.role, "content": _content(message)}
        if opaque:
            fields |= restored(opaque)[0]
        return orjson.dumps(fields)

    def turn(self, asking: Message, results: Sequence[Message], opaque: str = "", *, place: int = 0) -> Sequence[bytes]:
        """One message each: the calls, every result, and images and files of all results: those of tools are texts."""
        calls = [_call(call) for call in asking.tool_calls]
        asks: dict[str, Any] = {"role": asking.role, "content": _content(asking) or None, "tool_calls": calls}
        if opaque:
            fields, by_call = restored(opaque)
            asks |= fields
            for call in calls:
                call |= by_call.get(call["id"], {})
        ids = {}
        for tool_call, call in zip(asking.tool_calls, calls, strict=True):
            ids[tool_call.id] = call["id"] = self._id(call["id"])
        shown = [part for result in results for part in _shown(result)]
        after = [orjson.dumps({"role": "user", "content": [_SHOWN, *shown]})] if shown else []
        return [orjson.dumps(asks), *(_result(result, ids.get(result.call_id or "")) for result in results), *after]

    def _id(self, call_id: str) -> str:
        """The id of a call for the provider that is asked: the same for the same, whatever made it."""
        if not self._short_ids or _SHORT.fullmatch(call_id):
            return call_id
        return hashlib.sha256(call_id.encode()).hexdigest()[:9]

    def plain(self, text: bytes) -> bytes:
        """Without fields that are no part of a message or a call in every server."""
        message: dict[str, Any] = orjson.loads(text)
        for call in message.get("tool_calls", ()):
            call.pop(EXTRA, None)
        return orjson.dumps({name: value for name, value in message.items() if name in _OF_A_MESSAGE})

    def in_words(self, text: bytes) -> bytes:
        """Texts in place of images and files."""
        message: dict[str, Any] = orjson.loads(text)
        if not isinstance(message["content"], list) or all(part["type"] == "text" for part in message["content"]):
            return text
        message["content"] = [_in_words(part) for part in message["content"]]
        return orjson.dumps(message)

    def parsed(self, text: bytes) -> Sequence[Message]:
        """The one message that ``text`` is."""
        message: dict[str, Any] = orjson.loads(text)
        calls = tuple(
            ToolCall(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
            for call in message.get("tool_calls", ())
        )
        return [Message(role=message["role"], content=_text(message["content"]), tool_calls=calls)]

    def body(
        self, agent: AgentSpec, messages: Sequence[bytes], offers: Sequence[Offer], settings: CallSettings
    ) -> bytes:
        """The request's JSON."""
        options = _options(agent, offers, settings)
        if settings.cache:
            messages = marked(messages)
        if agent.instructions:
            messages = [orjson.dumps(system_message(agent.instructions, cached=settings.cache)), *messages]
        return orjson.dumps(options)[:-1] + b',"messages":[' + b",".join(messages) + b"]}"

    def reader(self, *, max_calls: int) -> Completion:
        """A reader for one answer."""
        return Completion(max_calls=max_calls)


def _content(message: Message) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content
    return [_part(part) for part in message.content]


def _part(part: Part) -> dict[str, Any]:
    """A part of a message. What has no place here was refused when it came in, or is of a conversation that began in
    another protocol: the model is told what it was."""
    match part:
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": part.sent_url}}
        case FilePart(name=name) if part.inline:
            return {"type": "file", "file": {"filename": name or _UNNAMED, "file_data": part.sent_url}}
        case _:
            return {"type": "text", "text": text_of((part,))}


def _in_words(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return part
    name = part["file"]["filename"] if part["type"] == "file" else "image"
    return {"type": "text", "text": LEFT_OUT.format(name)}


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", f"[{part['type'].removesuffix('_url')}]") for part in content)
    return content or ""


def _options(agent: AgentSpec, offers: Sequence[Offer], settings: CallSettings) -> dict[str, Any]:
    """The request but for its messages."""
    options: dict[str, Any] = {"model": agent.model_name, "stream": agent.stream}
    if agent.stream:
        options["stream_options"] = {"include_usage": True}
    options |= {name: value for name in _SAME if (value := getattr(agent, name)) is not None}
    if most_tokens := agent.max_output_tokens or settings.max_output_tokens:
        options["max_completion_tokens" if settings.max_completion_tokens else "max_tokens"] = most_tokens
    if offers:
        options["tools"] = [_offered(offer) for offer in offers]
        if agent.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = agent.parallel_tool_calls
        if agent.tool_choice is not None:
            options["tool_choice"] = _chosen(agent.tool_choice)
    if agent.response_format is not None:
        options["response_format"] = _format(agent.response_format)
    return options | (agent.extra_body or {})


def _chosen(choice: ToolChoice) -> str | dict[str, Any]:
    if isinstance(choice, NamedTool):
        return {"type": "function", "function": {"name": choice.name}}
    return choice


def _format(response_format: ResponseFormat) -> dict[str, Any]:
    if not isinstance(response_format, JsonSchemaFormat):
        return {"type": response_format.type}
    schema = CHAT_COMPLETIONS.sent_schema(response_format)
    fields = {"name": response_format.name, "schema": schema, "strict": response_format.strict}
    present = {name: value for name, value in fields.items() if value is not None}
    return {"type": response_format.type, response_format.type: present}


def _offered(offer: Offer) -> dict[str, Any]:
    parameters = orjson.Fragment(fitted_tool(offer.parameters, CHAT_COMPLETIONS.tools).schema)
    function = {"name": offer.name, "description": offer.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _shown(result: Message) -> list[dict[str, Any]]:
    """Return the parts of a result that a tool's message cannot have, behind a line that says whose they are."""
    if isinstance(result.content, str):
        return []
    parts = [part for part in map(_part, result.content) if part["type"] != "text"]
    return [{"type": "text", "text": f"{result.name or 'tool'} ({result.call_id}):"}, *parts] if parts else []


def _result(message: Message, call_id: Any) -> bytes:
    content = f"Error: {message.text}" if message.is_error else message.text
    return orjson.dumps({"role": "tool", "tool_call_id": call_id, "content": content})


def _call(call: ToolCall) -> dict[str, Any]:
    """A call as the model wrote it, but for what providers refuse: an empty object in place of arguments that are no
    JSON object, and a name that can be one."""
    name = call.name if _NAME.fullmatch(call.name) else _NO_NAME.sub("_", call.name)[:_LONGEST_NAME] or "unknown"
    return {"id": call.id, "type": "function", "function": {"name": name, "arguments": as_json(call.arguments)}}
