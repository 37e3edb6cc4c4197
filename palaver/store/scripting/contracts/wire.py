"""The form in which a value of a script travels, by its type.

=====================  =========================  ==========================================
field                  on the wire                in Lua
=====================  =========================  ==========================================
``str``, an enum       text                       text
``Json``               JSON text                  that text: a script decodes what it looks into
``int``                a number                   a number
``bool``               1 or 0                     a boolean
``… | None``           empty for None             nil for None; an empty text is None, too
``tuple[X, ...]``      a count, then each         a list
``Batch[X]``           the same                   a loop over the values, which makes no tables
a record (NamedTuple)  its fields                 a table with the same names
=====================  =========================  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from palaver.store.redis.keys import Key, ReadyKeys

Json = Annotated[str | bytes, "JSON text"]
Entries = Annotated[Sequence[Any], "entries of a stream, as Redis answers them"]
T = TypeVar("T")
Batch = Annotated[tuple[T, ...], "many, of which a script does the same with each"]

Read = Callable[[Any], Any]


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


def _same(value: Any) -> Any:
    return value


_WIRES: Final[Mapping[Any, Wire]] = {
    str: Wire((str,), "{}", "{}", bytes.decode),
    bytes: Wire((bytes,), "{}", "{}", _same),
    Json: Wire((str, bytes), "{}", "{}", _same),
    int: Wire((int,), "tonumber({})", "{}", int),
    bool: Wire((bool,), "{} == '1'", "{} and 1 or 0", bool),
    Entries: Wire((), "", "{}", _same),
}


def wire_of(hint: Any) -> Wire:
    """Return the form in which a field of that type travels.

    Raises:
        TypeError: there is no way for it.
    """
    if hint in _WIRES:
        return _WIRES[hint]
    if get_origin(hint) is Literal:
        return _WIRES[str]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Wire((hint,), "{}", "{}", lambda text: hint(text.decode()))
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        (other,) = (each for each in get_args(hint) if each is not NoneType)
        wire = wire_of(other)
        to_lua = wire.to_lua if other is int else "{} ~= '' and {} or nil"
        return Wire(
            (*wire.accepts, NoneType), to_lua, "{} or ''", lambda value: None if value == b"" else wire.read(value)
        )
    if get_origin(hint) is tuple:
        read = _reader_of_each(get_args(hint)[0])
        return Wire((), "", "{}", lambda values: tuple(map(read, values)))
    raise TypeError(f"a script's value cannot be {hint}")


def _reader_of_each(hint: Any) -> Read:
    if not is_record(hint):
        return wire_of(hint).read
    wires = [wire_of(each) for each in get_type_hints(hint).values()]
    return lambda values: hint(*(wire.read(value) for wire, value in zip(wires, values, strict=True)))


def each_of(hint: Any) -> Any:
    """The type of a list's items; None if the hint is not a list."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return get_args(hint)[0] if get_origin(hint) is tuple else None


def is_record(hint: Any) -> bool:
    """Tell whether it is a named tuple."""
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


class Field(NamedTuple):
    """A field of a script or of a record."""

    name: str
    wire: Wire | None
    """None for a key."""
    names: tuple[str, ...] = ()
    """For each of them there is a key."""

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
        return cls(name, None, hint.__metadata__[0]) if hint == ReadyKeys else cls(name, wire_of(hint))
