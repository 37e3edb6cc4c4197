"""The input of a request: messages for the conversation, and answers to calls that wait for the client."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from palaver.errors import FieldError, Refused
from palaver.late import dataclass
from palaver.schemas.mcp_servers import tool_name

from .items import SERVER

_LATE: Final = "comes behind other messages: what it says goes into the instructions, or stands first"
_ACTION: Final = re.compile("act_[0-9a-f]{24}")
"""The action that an item asks for a decision on, at the beginning of its id."""
_ECHOES: Final = ("reasoning", "mcp_list_tools", "mcp_approval_request")
"""Items of an output that say nothing to a model when they come back: the log has what they stand for."""


@dataclass(slots=True)
class ClientInput:
    """The input that a client has put into a request."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)
    """The words of system messages that stand before all others."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """Outputs of calls that are not in the input, by call id."""
    decisions: dict[str, tuple[bool, str | None]] = field(default_factory=dict)
    """By id of an approval request: the decision, and the reason."""

    @property
    def answers(self) -> bool:
        """True if it answers calls."""
        return bool(self.outputs or self.decisions)


def read_input(value: str | Sequence[Mapping[str, Any]] | None, where: str = "/input") -> ClientInput:
    """Return the input that is a text, or a list of items.

    Raises:
        Refused: an item cannot be carried, and which.
    """
    if value is None:
        return ClientInput()
    if isinstance(value, str):
        return ClientInput([{"role": "user", "content": value}])
    reading = _Reading(where)
    for place, item in enumerate(value):
        reading.read(place, item)
    return reading.read_all()


def read_chat(messages: Sequence[Mapping[str, Any]]) -> ClientInput:
    """Return the input that the messages of a chat completion are.

    Raises:
        Refused: a message cannot be carried, and which.
    """
    reading = _Reading("/messages")
    for place, message in enumerate(messages):
        for item in _items_of(message):
            reading.read(place, item)
    return reading.read_all()


def _items_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the items of a response's input that say what a message of a chat says."""
    if message.get("role") == "tool":
        call_id, output = message.get("tool_call_id"), message.get("content")
        return [{"type": "function_call_output", "call_id": call_id, "output": output}]
    calls = message.get("tool_calls")
    items = list[Mapping[str, Any]]()
    if message.get("content") or not (calls or message.get("role") == "assistant"):
        items.append({**message, "type": "message"})
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        about = function if isinstance(function, dict) else {}
        call_id = call.get("id") if isinstance(call, dict) else None
        items.append({**about, "type": "function_call", "call_id": call_id})
    return items


class _Reading:
    """Reads items one after the other."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._place = 0
        self._calls: set[str] = set()
        self._into = ClientInput()
        self._kinds: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "message": self._message,
            "function_call": self._call,
            "function_call_output": self._output,
            "mcp_call": self._server_call,
            "mcp_approval_response": self._decision,
        }

    def read(self, place: int, item: Mapping[str, Any]) -> None:
        """Take the next item."""
        self._place = place
        kind = item.get("type", "message")
        if kind in _ECHOES:
            return
        read = self._kinds.get(kind) if isinstance(kind, str) else None
        if read is None:
            known = ", ".join(sorted((*self._kinds, *_ECHOES)))
            raise self._refused("/type", "unsupported_content", f"is none of the items that are taken here: {known}")
        read(item)

    def read_all(self) -> ClientInput:
        """Return all of it."""
        return self._into

    def _message(self, item: Mapping[str, Any]) -> None:
        role = item.get("role")
        content = self._content(item.get("content"))
        if role == "assistant" and not content:
            # It says nothing: clients write one where a model has only called.
            return
        match role:
            case "system" | "developer":
                if self._into.messages:
                    raise self._refused("/role", "unsupported_content", _LATE)
                if not isinstance(content, str):
                    raise self._refused("/content", "unsupported_content", "is text alone, for this role")
                self._into.instructions.append(content)
            case "user" | "assistant":
                self._into.messages.append({"role": role, "content": content})
            case _:
                raise self._refused("/role", "validation_error", "must be user, assistant, system or developer")

    def _content(self, content: Any) -> str | list[dict[str, Any]]:
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise self._refused("/content", "validation_error", "must be a text or a list of parts")
        parts = [self._part(place, part) for place, part in enumerate(content)]
        if all(part["type"] == "text" for part in parts):
            return "".join(part["text"] for part in parts)
        return parts

    def _part(self, place: int, part: Any) -> dict[str, Any]:
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": str() as text}:
                return {"type": "text", "text": text}
            case {"type": "refusal", "refusal": str() as text}:
                return {"type": "text", "text": text}
            case {"type": "input_image", "image_url": str() as url}:
                return {"type": "image", "url": url}
            case {"type": "image_url", "image_url": {"url": str() as url}}:
                return {"type": "image", "url": url}
            case {"type": "input_file", "file_data": str() as url}:
                return _file(url, part.get("filename"))
            case {"type": "input_file", "file_url": str() as url}:
                return _file(url, part.get("filename"))
            case {"type": "file", "file": {"file_data": str() as url} as of_chat}:
                return _file(url, of_chat.get("filename"))
        why = "is none of input_text, input_image with an image_url, and input_file with file_data or a file_url"
        raise self._refused(f"/content/{place}", "unsupported_content", f"{why}: nothing is uploaded here")

    def _call(self, item: Mapping[str, Any]) -> None:
        self._add_call(self._text(item, "call_id"), self._text(item, "name"), self._text(item, "arguments"))

    def _add_call(self, call_id: str, name: str, arguments: str) -> None:
        messages = self._into.messages
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        messages[-1].setdefault("tool_calls", []).append({"id": call_id, "name": name, "arguments": arguments})
        self._calls.add(call_id)

    def _output(self, item: Mapping[str, Any]) -> None:
        call_id, output = self._text(item, "call_id"), item.get("output", "")
        if isinstance(output, list):
            output = self._content(output)
        elif not isinstance(output, str):
            raise self._refused("/output", "validation_error", "must be a text or a list of parts")
        if call_id in self._calls:
            self._into.messages.append({"role": "tool", "call_id": call_id, "content": output})
        else:
            self._into.outputs[call_id] = output

    def _server_call(self, item: Mapping[str, Any]) -> None:
        call_id = self._text(item, "id")
        label, name = item.get("server_label"), self._text(item, "name")
        called = name if label in (None, SERVER) else tool_name(str(label), name)
        self._add_call(call_id, called, self._text(item, "arguments"))
        output = item.get("output")
        self._into.messages.append(
            {
                "role": "tool",
                "call_id": call_id,
                "content": output if isinstance(output, str) else "",
                "is_error": item.get("status") == "failed",
            }
        )

    def _decision(self, item: Mapping[str, Any]) -> None:
        approve, reason = item.get("approve"), item.get("reason")
        if not isinstance(approve, bool):
            raise self._refused("/approve", "validation_error", "must be true or false")
        if not isinstance(reason, str | None):
            raise self._refused("/reason", "validation_error", "must be a text")
        request = self._text(item, "approval_request_id")
        action = _ACTION.match(request)
        self._into.decisions[action[0] if action else request] = approve, reason

    def _text(self, item: Mapping[str, Any], name: str) -> str:
        value = item.get(name)
        if not isinstance(value, str):
            raise self._refused(f"/{name}", "validation_error", "must be a text")
        return value

    def _refused(self, place: str, code: str, why: str) -> Refused:
        return Refused.of_faults([FieldError(f"{self._where}/{self._place}{place}", code, why)])


def _file(url: str, name: Any) -> dict[str, Any]:
    return {"type": "file", "url": url, **({"name": name} if isinstance(name, str) else {})}
