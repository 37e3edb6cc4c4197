"""The form in which a value of a script travels, by its type.

=====================  =========================  ==========================================
field                  on the wire                in Lua
=====================  =========================  ==========================================
``str``, an enum       text                       text
``Json``               JSON text                  that text: a script decodes what it looks into
``Seconds``            whole milliseconds         a number, by the field's name with ``_ms``
``int``                a number                   a number
``bool``               1 or 0                     a boolean
``… | None``           empty for None             nil for None; an empty text is None, too
``tuple[X, ...]``      a count, then each         a list
``Batch[X]``           the same                   a loop over the values, which makes no tables
a record (NamedTuple)  its fields                 a table with the same names
=====================  =========================  ==========================================

Some types come in replies alone: what a script has as JSON, or as a text of ours, is read into what Python works with
(`ANSWERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from palaver.errors import Failure
from palaver.schemas.models import AgentSpec, ToolCall
from palaver.steps.leases import AskingAgent, LogTail
from palaver.store.redis.keys import Key
from palaver.store.scripting.log_entries import read_tail
from palaver.telemetry.traces import Trace
from palaver.vocabulary.durations import Seconds
from palaver.vocabulary.limits import KIB
from palaver.vocabulary.step_kinds import StepKind

Json = Annotated[str | bytes, "JSON text"]
UNSENT: Final = "a value that a reply echoes, and Lua does not see"
Unsent = Annotated[str, UNSENT]
UnsentKind = Annotated[StepKind, UNSENT]
Entries = Annotated[Sequence[Any], "entries of a stream, as Redis answers them"]
T = TypeVar("T")
Batch = Annotated[tuple[T, ...], "many, of which a script does the same with each"]

Read = Callable[[Any], Any]
Metadata = Mapping[str, str]

_NUMBER: Final = "{} + 0"
"""Half of what ``tonumber`` takes, which is a call, and reads a text twice."""
_CACHED: Final = 16 * KIB
"""Bytes of an agent's JSON that is kept as it was read: many runs have the same one."""


class Wire(NamedTuple):
    """The form in which one value travels."""

    accepts: tuple[type, ...]
    """Types that Python takes."""
    to_lua: str
    """The Lua expression that reads it from the text in place of ``{}``."""
    from_lua: str
    """The Lua expression that a reply has for it."""
    read: Read
    """Makes the value of what the reply has."""
    write: Read | None = None
    """Makes what is sent of the value; None if it is sent as it is."""
    unit: str = ""
    """The ending of the field's name in Lua."""


def read_agent(text: bytes) -> AgentSpec:
    """An agent from its JSON."""
    return _cached_agent(text) if len(text) <= _CACHED else AgentSpec.model_validate_json(text)


@lru_cache(maxsize=1024)
def _cached_agent(text: bytes) -> AgentSpec:
    return AgentSpec.model_validate_json(text)


def _asking(reply: tuple[bytes, int]) -> AgentSpec:
    """The agent, with the model that is asked now: its own or one of its fallbacks."""
    text, place = reply
    spec = read_agent(text)
    # An agent's own model has another name than it says, too, if it is asked at its endpoint.
    model = spec.models[int(place)]
    return spec if model == spec.model else spec.model_copy(update={"model": model})


def _seconds(millis: int) -> float:
    return millis / 1000


def _millis(seconds: float) -> int:
    return round(seconds * 1000)


def _same(value: Any) -> Any:
    return value


_WIRES: Final[Mapping[Any, Wire]] = {
    str: Wire((str,), "{}", "{}", bytes.decode),
    bytes: Wire((bytes,), "{}", "{}", _same),
    Json: Wire((str, bytes), "{}", "{}", _same),
    int: Wire((int,), _NUMBER, "{}", int),
    bool: Wire((bool,), "{} == '1'", "{} and 1 or 0", bool),
    Seconds: Wire((float, int), _NUMBER, "{}", _seconds, _millis, "_ms"),
    Entries: Wire((), "", "{}", _same),
}
ANSWERS: Final[Mapping[Any, Read]] = {
    AskingAgent: _asking,
    LogTail: read_tail,
    ToolCall: ToolCall.model_validate_json,
    Metadata: orjson.loads,
    Trace: lambda text: Trace.from_stored(text.decode()),
    Failure: lambda text: Failure.of_error(orjson.loads(text)),
}
"""Types of replies, and what reads one."""


def wire_of(hint: Any) -> Wire:
    """Return the form in which a field of that type travels.

    Raises:
        TypeError: there is no way for it.
    """
    if hint in _WIRES:
        return _WIRES[hint]
    if hint in ANSWERS:
        return Wire((), "", "{}", ANSWERS[hint])
    if get_origin(hint) is Literal:
        return _WIRES[str]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Wire((hint,), "{}", "{}", lambda text: hint(text.decode()))
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        (other,) = (option for option in get_args(hint) if option is not NoneType)
        wire = wire_of(other)
        to_lua = f"{{}} ~= '' and {wire.to_lua if other in (int, Seconds) else '{}'} or nil"
        accepts, write = (*wire.accepts, NoneType), wire.write and _unless_none(wire.write)
        return Wire(accepts, to_lua, "{} or ''", _unless_empty(wire.read), write, wire.unit)
    if get_origin(hint) is tuple:
        read = _item_reader(get_args(hint)[0])
        return Wire((), "", "{}", lambda values: tuple(map(read, values)))
    raise TypeError(f"a script's value cannot be {hint}")


def _unless_empty(read: Read) -> Read:
    return lambda value: None if value == b"" else read(value)


def _unless_none(write: Read) -> Read:
    return lambda value: None if value is None else write(value)


def _item_reader(hint: Any) -> Read:
    if not is_record(hint):
        return wire_of(hint).read
    reads = [wire_of(field_hint).read for field_hint in get_type_hints(hint, include_extras=True).values()]
    return lambda values: hint(*(read(value) for read, value in zip(reads, values, strict=True)))


def item_type(hint: Any) -> Any:
    """The type of a list's items; None if the hint is not a list."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return get_args(hint)[0] if get_origin(hint) is tuple else None


def is_unsent(hint: Any) -> bool:
    """Tell whether a value is for the reply alone."""
    return get_origin(hint) is Annotated and UNSENT in get_args(hint)


def is_record(hint: Any) -> bool:
    """Tell whether it is a named tuple."""
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


class Field(NamedTuple):
    """A field of a script or of a record."""

    name: str
    """In Lua: that of Python, and its unit."""
    wire: Wire | None
    """None for a key."""

    @classmethod
    def all_of(cls, record: type) -> tuple[Field, ...]:
        """Return the fields of a record."""
        hints = get_type_hints(record, include_extras=True)
        return tuple(cls.of(name, hint) for name, hint in hints.items())

    @classmethod
    def of(cls, name: str, hint: Any) -> Field:
        """One of that type."""
        if hint == Key:
            return cls(name, None)
        wire = wire_of(hint)
        return cls(name + wire.unit, wire)
