"""A tool's result as the model sees it. The work is bounded by what the model sees, not by what the tool answered."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections import deque
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

from pydantic import BaseModel

from palaver.errors import ToolError
from palaver.schemas.content import FilePart, ImagePart, Part, TextPart
from palaver.vocabulary.limits import count_exceeded, limit_of

MAX_RESULT_CHARS: Final = limit_of("tool_result")
"""Characters of a result that a model sees; the rest is cut and said to be."""
_MAX_DEPTH: Final = limit_of("tool_result_depth")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_FEW, _BRIEF, _FLAT = 64, 4096, 8
"""A result with fewer parts, shorter texts and fewer levels is written in one go, ten times faster."""
_PLAIN: Final = frozenset({int, float, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list, tuple})
_ARRAYS: Final = (list, tuple, Set, deque)
_UNREADABLE: Final = (
    (inspect.iscoroutine, "a coroutine, which nobody awaits: declare the tool with `async def`"),
    (inspect.isawaitable, "something to await: declare the tool with `async def`, and await it there"),
    (inspect.isasyncgen, "an asynchronous generator: gather what it yields, and return a list"),
    (inspect.isgenerator, "a generator: return a list"),
)


def rendered(result: object) -> str | tuple[Part, ...]:
    """Return a tool's ``result`` for the model: an image or a file, or a list of texts and such, as it is; anything
    else as `render` writes it.

    Raises:
        ToolError: also that there is more of it than may be.
    """
    if isinstance(result, ImagePart | FilePart):
        result = [result]
    if not isinstance(result, list | tuple) or not any(isinstance(part, ImagePart | FilePart) for part in result):
        return render(result)
    if len(result) > limit_of("message_parts"):
        count_exceeded("message_parts")
        raise ToolError(f"the result has {len(result)} parts; at most {limit_of('message_parts')}")
    parts = tuple(_part(part, MAX_RESULT_CHARS // len(result)) for part in result)
    size = sum(len(part.url) for part in parts if isinstance(part, ImagePart | FilePart))
    if size > limit_of("tool_result_media"):
        count_exceeded("tool_result_media")
        raise ToolError(
            f"the images and files of the result have {size:,} characters as data: URLs; at most "
            f"{limit_of('tool_result_media'):,}: make them smaller"
        )
    return parts


def _part(value: object, room: int) -> Part:
    if isinstance(value, ImagePart | FilePart):
        return value
    text = value.text if isinstance(value, TextPart) else render(value)
    if len(text) > room:
        count_exceeded("tool_result")
        text = f"{text[:room]}\n[cut: the text has {len(text):,} characters]"
    return TextPart(type="text", text=text)


def render(result: object) -> str:
    """Return a tool's ``result`` as a text for the model: text as it is, anything else as JSON; cut at 256 KiB.

    Raises:
        ToolError: the result is a generator or something to await, or nested too deep, perhaps in itself.
        Exception: whatever a method of the result raises.
    """
    if isinstance(result, ImagePart | FilePart):
        raise ToolError("the result is an image or a file, which only a tool of the server may answer with")
    if isinstance(result, str | bytes | bytearray | memoryview):
        length, text = _text_of(result)
        return _cut(text, f"the result has {length:,} characters")
    pieces, left = [], MAX_RESULT_CHARS + 1
    for piece in _json(result, MAX_RESULT_CHARS + 1, 0):
        pieces.append(piece)
        left -= len(piece)
        if left <= 0:
            break
    return _cut("".join(pieces), f"the result has more than {MAX_RESULT_CHARS:,} characters")


def _cut(text: str, cut: str) -> str:
    """``text`` in characters that can be sent, and not too many of them."""
    if len(text) > MAX_RESULT_CHARS:
        count_exceeded("tool_result")
        text = f"{text[:MAX_RESULT_CHARS]}\n[cut: {cut}]"
    return text.encode("utf-8", "replace").decode()


def _text_of(text: str | bytes | bytearray | memoryview, room: int = MAX_RESULT_CHARS + 1) -> tuple[int, str]:
    """Return its length and its first ``room`` characters; bytes are taken for UTF-8."""
    if isinstance(text, str):
        # Not by methods of its own: a subclass may have any.
        return str.__len__(text), str.__getitem__(text, slice(room))
    view = memoryview(text).cast("B")
    return len(view), bytes(view[: 4 * room]).decode("utf-8", "replace")[:room]


def _json(value: object, room: int, depth: int) -> Iterator[str]:
    """The pieces of ``value`` as JSON. None is much longer than ``room`` characters."""
    if depth > _MAX_DEPTH:
        count_exceeded("tool_result_depth")
        raise ToolError(f"the result is nested deeper than {_MAX_DEPTH} levels, or in itself")
    if _left_of(value, _FEW, _FLAT) >= 0:
        yield _ENCODER.encode(value)
    elif isinstance(value, str | bytes | bytearray | memoryview):
        yield _string(value, room)
    elif value is None or isinstance(value, bool | int | float):
        yield _ENCODER.encode(value)
    elif isinstance(value, BaseModel):
        yield value.model_dump_json()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _object(
            ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value)), room, depth
        )
    elif isinstance(value, Mapping):
        yield from _object(iter(value.items()), room, depth)
    elif isinstance(value, _ARRAYS):
        yield "["
        for number, item in enumerate(value):
            yield ", " if number else ""
            yield from _json(item, room, depth + 1)
        yield "]"
    else:
        for is_such, what in _UNREADABLE:
            if is_such(value):
                _close(value)
                raise ToolError(f"the result is {what}")
        yield _string(str(value), room)


def _left_of(value: Any, parts: int, levels: int) -> int:
    """Return how many of so many ``parts`` remain if ``value`` is plain and takes no more; else less than 0."""
    kind = type(value)
    if kind in _PLAIN:
        return parts - 1
    if kind is str:
        return parts - 1 if len(value) <= _BRIEF else -1
    if kind not in _CONTAINERS or len(value) > parts or not levels:
        return -1
    if kind is dict:
        for name in value:
            if type(name) is not str or len(name) > _BRIEF:
                return -1
        value = value.values()
    parts -= 1
    for item in value:
        parts = _left_of(item, parts, levels - 1)
        if parts < 0:
            return -1
    return parts


def _object(items: Iterator[tuple[Any, Any]], room: int, depth: int) -> Iterator[str]:
    yield "{"
    for number, (name, value) in enumerate(items):
        yield ", " if number else ""
        if not isinstance(name, str):
            name = _ENCODER.encode(name) if name is None or isinstance(name, int | float) else str(name)
        yield _string(name, room) + ": "
        yield from _json(value, room, depth + 1)
    yield "}"


def _string(text: str | bytes | bytearray | memoryview, room: int) -> str:
    return _ENCODER.encode(_text_of(text, room)[1])


def _close(value: Any) -> None:
    """Unless a coroutine is closed, Python complains when it is dropped."""
    if inspect.iscoroutine(value):
        value.close()
