"""A tool's result as the model sees it. The work is bounded by what the model sees, not by what the tool answered."""

from __future__ import annotations

import codecs
import dataclasses
import inspect
import json
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Reversible, Set
from typing import Any, Final

from pydantic import BaseModel

from palaver.errors import ToolError
from palaver.schemas.content import FilePart, ImagePart, Part, TextPart
from palaver.secrets.redaction import redact
from palaver.vocabulary.limits import count_exceeded, limit_of

MAX_RESULT_CHARS: Final = limit_of("tool_result")
"""Characters of a result that a model sees at most."""
USUAL_RESULT_CHARS: Final = limit_of("tool_result_usual")
"""The default."""
_MAX_DEPTH: Final = limit_of("tool_result_depth")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_FEW, _BRIEF, _FLAT = 64, 4096, 8
"""A result with fewer parts, shorter texts and fewer levels is written in one go, ten times faster."""
_PLAIN: Final = frozenset({int, float, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list, tuple})
_LONGEST_SECRET: Final = 1024
"""Characters beyond a cut in which a secret is looked for."""
_CLUSTER: Final = 64
"""Characters before a cut that it may move back, so that it divides none of those that readers see."""
_FLAGS: Final = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""The letters of flags, two for each."""
_JOINS: Final = ("\u200d", "\ufe0e", "\ufe0f")
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that begin no character."""
_ARRAYS: Final = (list, tuple, Set, deque)
_UNREADABLE: Final = (
    (inspect.iscoroutine, "a coroutine, which is never awaited: declare the tool with `async def`"),
    (inspect.isawaitable, "something to await: declare the tool with `async def`, and await it there"),
    (inspect.isasyncgen, "an asynchronous generator: gather what it yields, and return a list"),
    (inspect.isgenerator, "a generator: return a list"),
)


def rendered(result: object, most: int = USUAL_RESULT_CHARS) -> str | tuple[Part, ...]:
    """Return a tool's ``result`` for the model: an image or a file, or a list of texts and such, as it is; anything
    else as `render` writes it. Texts have ``most`` characters together.

    Raises:
        ToolError: also that there is more of it than may be.
    """
    if isinstance(result, ImagePart | FilePart):
        result = [result]
    if not isinstance(result, list | tuple) or not any(isinstance(part, ImagePart | FilePart) for part in result):
        return render(result, most)
    if len(result) > limit_of("message_parts"):
        count_exceeded("message_parts")
        raise ToolError(f"the result has {len(result)} parts; at most {limit_of('message_parts')}")
    texts = sum(not isinstance(part, ImagePart | FilePart) for part in result)
    parts = tuple(_part(part, most // max(1, texts)) for part in result)
    size = sum(len(part.url) for part in parts if isinstance(part, ImagePart | FilePart))
    if size > limit_of("tool_result_media"):
        count_exceeded("tool_result_media")
        raise ToolError(
            f"the images and files of the result have {size:,} characters as data: URLs; at most "
            f"{limit_of('tool_result_media'):,}: make them smaller"
        )
    return parts


def _part(value: object, most: int) -> Part:
    if isinstance(value, ImagePart | FilePart):
        return value
    return TextPart(type="text", text=render(value.text if isinstance(value, TextPart) else value, most))


def render(result: object, most: int = MAX_RESULT_CHARS) -> str:
    """Return a tool's ``result`` as a text for the model: text as it is, anything else as JSON. Of more than ``most``
    characters the first and the last half stay, with a line between about what is left out.

    Raises:
        ToolError: the result is a generator or something to await, or nested too deep, perhaps in itself.
        Exception: whatever a method of the result raises.
    """
    if isinstance(result, ImagePart | FilePart):
        raise ToolError("the result is an image or a file, which only a tool of the server may answer with")
    if isinstance(result, bytes | bytearray | memoryview):
        view = memoryview(result).cast("B")
        if len(view) > 4 * MAX_RESULT_CHARS:
            head, tail = _text_of(view, most), _text_of(view, most, back=True)
            return _shortened(head, tail, most, len(view), "bytes")
        result = bytes(view).decode("utf-8", "replace")
    if isinstance(result, str):
        # Not by methods of its own: a subclass may have any.
        length = str.__len__(result)
        if length <= most:
            return sendable(str.__getitem__(result, slice(None)))
        return _shortened(_text_of(result, most), _text_of(result, most, back=True), most, length)
    text = _written(result)
    if len(text) <= MAX_RESULT_CHARS:
        return render(text, most)
    return _shortened(text, _written(result, back=True), most, None)


def _written(value: object, *, back: bool = False) -> str:
    """``value`` as JSON, or of a long one the beginning, or with ``back`` the end."""
    pieces, left = [], MAX_RESULT_CHARS + 1
    for piece in _json(value, MAX_RESULT_CHARS + 1, 0, back):
        pieces.append(piece)
        left -= len(piece)
        if left <= 0:
            break
    return "".join(reversed(pieces) if back else pieces)


def _shortened(head: str, tail: str, most: int, length: int | None, unit: str = "characters") -> str:
    """The beginning of ``head`` and the end of ``tail``, of a text of that ``length``; None: longer than any may be. A
    secret that a cut would halve is seen whole before."""
    count_exceeded("tool_result")
    at, back = _cut_at(head, most // 2), _cut_at(tail, len(tail) - most // 2)
    first = redact(head[: at + _LONGEST_SECRET])[:at]
    seen = redact(tail[max(0, back - _LONGEST_SECRET) :])
    last = seen[max(0, len(seen) - (len(tail) - back)) :]
    if length is None:
        left = f"all between is left out: together there are more than {MAX_RESULT_CHARS:,} {unit}"
    elif unit == "bytes":
        left = f"{length - len(head[:at].encode()) - len(tail[back:].encode()):,} of {length:,} bytes are left out here"
    else:
        left = f"{length - at - (len(tail) - back):,} of {length:,} characters are left out here"
    return sendable(f"{first}\n[cut: {left}]\n{last}")


def _cut_at(text: str, at: int) -> int:
    """The place nearest before ``at`` where a cut divides nothing that readers take for one character."""
    for place in range(at, max(0, at - _CLUSTER), -1):
        if not _divides(text, place):
            return place
    return at


def _divides(text: str, place: int) -> bool:
    """Tell whether a cut there divides one character: halves of a pair, a letter and its accents, joined emoji, two
    letters of a flag, the end of a line."""
    before, behind = text[place - 1 : place], text[place : place + 1]
    joined = before == _JOINS[0] or behind in _JOINS or unicodedata.category(behind or " ") in ("Mn", "Mc", "Me")
    halves = "\ud800" <= before <= "\udbff" and "\udc00" <= behind <= "\udfff"
    letters = place - len(text[:place].rstrip(_FLAGS)) if behind and behind in _FLAGS else 0
    toned = "\U0001f3fb" <= behind <= "\U0001f3ff"
    return joined or halves or letters % 2 == 1 or toned or (before, behind) == ("\r", "\n")


def sendable(text: str) -> str:
    """``text`` in characters that can be sent: two halves of a pair as the one that they are, one alone as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _text_of(text: str | memoryview, room: int, *, back: bool = False) -> str:
    """Its first ``room`` characters and some more, or the last ones; bytes are taken for UTF-8, without a character
    that is cut."""
    some = room + _LONGEST_SECRET + _CLUSTER
    if isinstance(text, str):
        return str.__getitem__(text, slice(-some, None) if back else slice(some))
    if back:
        return bytes(text[-4 * some :]).lstrip(_CONTINUATIONS).decode("utf-8", "replace")[-some:]
    return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(text[: 4 * some]))[:some]


def _json(value: object, room: int, depth: int, back: bool) -> Iterator[str]:
    """The pieces of ``value`` as JSON, the last ones first with ``back``. None is much longer than ``room``
    characters."""
    if depth > _MAX_DEPTH:
        count_exceeded("tool_result_depth")
        raise ToolError(f"the result is nested deeper than {_MAX_DEPTH} levels, or in itself")
    if _left_of(value, _FEW, _FLAT) >= 0:
        yield _ENCODER.encode(value)
    elif isinstance(value, str | bytes | bytearray | memoryview):
        yield _string(value, room, back)
    elif value is None or isinstance(value, bool | int | float):
        yield _ENCODER.encode(value)
    elif isinstance(value, BaseModel):
        yield value.model_dump_json()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
        yield from _container("{}", fields, room, depth, back)
    elif isinstance(value, Mapping):
        yield from _container("{}", value.items(), room, depth, back)
    elif isinstance(value, _ARRAYS):
        yield from _container("[]", value, room, depth, back)
    else:
        for is_such, what in _UNREADABLE:
            if is_such(value):
                _close(value)
                raise ToolError(f"the result is {what}")
        yield _string(str(value), room, back)


def _container(brackets: str, members: Iterable[Any], room: int, depth: int, back: bool) -> Iterator[str]:
    """The pieces of an object, whose members are names and values, or of an array."""
    is_object = brackets == "{}"
    yield brackets[back]
    for number, member in enumerate(_from_the_end(members) if back else members):
        yield ", " if number else ""
        name, value = member if is_object else ("", member)
        named = f"{_name_of(name, room)}: " if is_object else ""
        yield "" if back else named
        yield from _json(value, room, depth + 1, back)
        yield named if back else ""
    yield brackets[not back]


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


def _name_of(name: object, room: int) -> str:
    if not isinstance(name, str):
        name = _ENCODER.encode(name) if name is None or isinstance(name, int | float) else str(name)
    return _string(name, room, back=False)


def _from_the_end(members: Iterable[Any]) -> Iterable[Any]:
    """The members in reverse; none, if they can only be had from the beginning."""
    return reversed(members) if isinstance(members, Reversible) else ()


def _string(text: str | bytes | bytearray | memoryview, room: int, back: bool) -> str:
    kept = text if isinstance(text, str) else memoryview(text).cast("B")
    return _ENCODER.encode(_text_of(kept, room, back=back))


def _close(value: Any) -> None:
    """Unless a coroutine is closed, Python complains when it is dropped."""
    if inspect.iscoroutine(value):
        value.close()
