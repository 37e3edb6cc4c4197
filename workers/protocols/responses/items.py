"""Items: what the input of a request is made of. They are kept as JSON, so that a conversation is put together by
joining bytes.

Messages and calls go without the ids that the provider gave its items: it keeps none of them (``store`` is false), and
would look for the reasoning that belongs to one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from palaver.schemas.arguments import as_json
from palaver.schemas.content import FilePart, ImagePart, Part, text_of
from palaver.schemas.models import Message, ToolCall

from ..calls import id_elsewhere
from ..port import LEFT_OUT
from ..verbatim import elements, members, value_of

log = logging.getLogger("palaver.workers.protocols.responses.items")

ITEMS: Final = "items"
"""The field with everything that is sent back unchanged, in its order: an item as it came; the id of a call; how many
characters of the text are there, and the phase of that message, if it has one."""
NOTHING: Final = f'{{"{ITEMS}":[]}}'
"""That there is nothing of it."""
REASONING: Final = b'"reasoning"'
PLAIN: Final = frozenset((None, "message", "function_call", "function_call_output"))
"""Types of items that have a place in any protocol."""
_MADE_HERE: Final = re.compile(r"call_[A-Za-z0-9]{16,59}")
"""An id that OpenAI made: no other call has it."""
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64
"""Characters of a name."""
_UNNAMED: Final = "file"
_MEDIA: Final = {"input_image": "image", "input_file": "file"}


def message_item(message: Message) -> bytes:
    """A message."""
    if isinstance(message.content, str):
        return _message(message.role, message.content)
    if message.role == "assistant":
        return _message(message.role, message.text)
    return _message(message.role, [_part(part) for part in message.content])


def spoken(text: str, phase: str | None = None) -> list[bytes]:
    """Return the model's words beside its calls as an item; none if there are none."""
    return [_message("assistant", text, phase)] if text else []


def call(tool_call: ToolCall, place: int) -> bytes:
    """A call as the model wrote it, but for what is refused: an empty object in place of arguments that are no JSON
    object, and a name that can be one."""
    name = _NOT_IN_NAMES.sub("_", tool_call.name)[:_LONGEST] or "unknown"
    about = {"type": "function_call", "call_id": _id(tool_call.id, place), "name": name}
    return orjson.dumps({**about, "arguments": as_json(tool_call.arguments)})


def result(answer: Message, place: int) -> bytes:
    """Return the item of a tool's answer."""
    output: str | list[dict[str, Any]]
    if isinstance(answer.content, str):
        output = f"Error: {answer.content}" if answer.is_error else answer.content
    else:
        failed = [{"type": "input_text", "text": "Error:"}] if answer.is_error else []
        output = [*failed, *(_part(part) for part in answer.content)]
    return orjson.dumps({"type": "function_call_output", "call_id": _id(answer.call_id or "", place), "output": output})


def restored(fields: str, text: str, calls: Mapping[str, bytes]) -> list[bytes]:
    """Return the items that ``Items.whole`` wrote, with the text and the calls in their places among them. Whatever
    cannot be read is left out."""
    items: list[bytes] = []
    left, open_calls = text, dict(calls)
    for raw, entry in _listed(fields):
        if isinstance(entry, dict):
            items.append(raw.encode())
        elif isinstance(entry, str):
            if item := open_calls.pop(entry, None):
                items.append(item)
        else:
            length, phase = entry if isinstance(entry, list) else (entry, None)
            items += spoken(left[:length], phase)
            left = left[length:]
    items += [*spoken(left), *open_calls.values()]
    # Reasoning is refused without the item that it led to: what that was to be, a limit has cut off.
    while items and orjson.loads(items[-1]).get("type") == "reasoning":
        items.pop()
    return items


def _listed(fields: str) -> list[tuple[str, Any]]:
    """Return the part of the list that can be read: the JSON of each entry, and its value."""
    try:
        listed = elements(members(fields)[ITEMS])
    except (ValueError, KeyError):
        listed = [""]
    readable_entries = [(raw, entry) for raw in listed if _is_listed(entry := value_of(raw))]
    if len(readable_entries) < len(listed):
        log.warning("what a provider wants back unchanged cannot be read and is left out")
    return readable_entries


def _is_listed(entry: Any) -> bool:
    match entry:
        case dict() | str() | int() | [int(), str()]:
            return True
        case _:
            return False


def split(text: bytes) -> list[str]:
    """The JSON of each item."""
    return elements(f"[{text.decode()}]")


def in_words(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return the item with texts in place of images and files; None if it has none."""
    field = "output" if item.get("type") == "function_call_output" else "content"
    parts = item.get(field)
    if not isinstance(parts, list) or not any(part.get("type") in _MEDIA for part in parts):
        return None
    return {**item, field: [_left_out(part) if part.get("type") in _MEDIA else part for part in parts]}


def _left_out(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_text", "text": LEFT_OUT.format(part.get("filename") or _MEDIA[part["type"]])}


def words(content: Any) -> str:
    """Return a content in words."""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or f"[{part['type'].removeprefix('input_')}]" for part in content)


def _message(role: str, content: Any, phase: str | None = None) -> bytes:
    return orjson.dumps({"role": role, "content": content} | ({"phase": phase} if phase else {}))


def _id(call_id: str, place: int) -> str:
    """An id that no other call of the conversation has."""
    return call_id if _MADE_HERE.fullmatch(call_id) else id_elsewhere(call_id, place)


def _part(part: Part) -> dict[str, Any]:
    match part:
        case ImagePart():
            return {"type": "input_image", "image_url": part.sent_url, "detail": "auto"}
        case FilePart(name=name) if part.inline:
            return {"type": "input_file", "filename": name or _UNNAMED, "file_data": part.sent_url}
        case FilePart(url=url):
            return {"type": "input_file", "file_url": url}
        case _:
            return {"type": "input_text", "text": text_of((part,))}
