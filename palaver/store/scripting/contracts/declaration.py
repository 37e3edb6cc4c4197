"""Declarations of scripts: their arguments and replies, once. Python and Lua are made from the same declaration.

A script is a class. Its fields are what travels, in their order: fields of the type ``Key``, and records of keys, are
KEYS; all others are ARGV. Its type parameter names the closed set of its replies. The Lua side (``assembly.py``) gets
the fields as ``keys.name`` and ``args.name``, and a constructor ``reply.name { … }`` for each reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from palaver.errors import NewerVersion
from palaver.late import first, postpone
from palaver.store.redis.connection import Value
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.wire import Field, Read, is_record, is_unsent, item_type, wire_of

NEWER: Final = "newer"
"""The reply of a script about a run when newer code has worked on its conversation; it is in no declaration."""

R = TypeVar("R", covariant=True)
T = TypeVar("T")
Put = Callable[[list[Any], list[Any], Any], None]
"""Puts a field's value into KEYS or ARGV."""


class Group(NamedTuple):
    """A field that is one record."""

    name: str
    fields: tuple[Field, ...]


class List(NamedTuple):
    """A field with any number of values, or of records."""

    name: str
    record: type | None
    fields: tuple[Field, ...]
    """The fields of the record; or one that stands for the value."""
    batch: bool


class Shape:
    """The fields of a script, in the order in which they travel: keys, arguments, lists."""

    def __init__(self, script: type) -> None:
        self.keys: list[Field] = []
        self.args: list[Field | Group] = []
        self.lists: list[List] = []
        self._puts: list[Put | None] = []
        hints = get_type_hints(script, include_extras=True)
        for field in fields(script):
            if self.lists and not item_type(hints[field.name]):
                raise TypeError(f"{script.__name__}: the lists come last, behind {field.name}")
            self._puts.append(self._place(field.name, hints[field.name]))
        if any(items.batch for items in self.lists[:-1]):
            raise TypeError(f"{script.__name__}: a batch comes last")
        behind = [
            *(key.name for key in self.keys),
            *(items.name for items in self.lists if any(field.wire is None for field in items.fields)),
        ]
        for name in behind[:-1]:
            if hints.get(name) == Key | None:
                raise TypeError(f"{script.__name__}: no key comes behind {name}, which may be none")
        self._accepts = [_accepted(hints[field.name]) for field in fields(script)]
        self._names = [field.name for field in fields(script)]
        self._checked: set[tuple[type, ...]] = set()

    def _place(self, name: str, hint: Any) -> Put | None:
        """Return where a field travels; None if it is one value of ARGV."""
        if is_record(hint):
            group = Group(name, Field.all_of(hint))
            if all(field.wire is None for field in group.fields):
                self.keys += group.fields
                return _put_keys
            self.args.append(group)
            return _Record(group.name, group.fields).put
        if is_unsent(hint):
            return _put_nothing
        if hint in (Key, Key | None):
            self.keys.append(Field(name, None))
            return _put_key
        if item := item_type(hint):
            record = item if is_record(item) else None
            inner = Field.all_of(item) if record else (Field.of(name, item),)
            self.lists.append(List(name, record, inner, get_origin(hint) is Annotated))
            return _Items(self.lists[-1]).put
        field = Field.of(name, hint)
        self.args.append(field)
        return None if field.wire is None or field.wire.write is None else _Converted(field.wire.write).put

    def pack(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """KEYS and ARGV.

        Raises:
            TypeError: a value is not of its declared type.
        """
        types = tuple(map(type, values))
        if types not in self._checked:
            _check(self._names, self._accepts, values)
            self._checked.add(types)
        keys: list[Any] = []
        args: list[Any] = []
        for put, value in zip(self._puts, values, strict=True):
            if put is None:
                args.append(value)
            else:
                put(keys, args, value)
        # redis-py sends neither None nor booleans.
        return keys, ["" if arg is None else int(arg) if arg is True or arg is False else arg for arg in args]


def _accepted(hint: Any) -> tuple[type, ...]:
    if is_record(hint):
        return (hint,)
    if item_type(hint):
        return (tuple, list)
    if is_unsent(hint):
        return (get_args(hint)[0],)
    if hint == Key:
        return (str,)
    return (str, NoneType) if hint == Key | None else wire_of(hint).accepts


def _check(names: Iterable[str], accepted: Iterable[tuple[type, ...]], values: Iterable[Any]) -> None:
    for name, types, value in zip(names, accepted, values, strict=True):
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            expected = " or ".join(accepted_type.__name__ for accepted_type in types)
            raise TypeError(f"{name} is {type(value).__name__}, and not {expected}")


def _put_keys(keys: list[Any], args: list[Any], value: tuple[str, ...]) -> None:
    keys += value


def _put_nothing(keys: list[Any], args: list[Any], value: object) -> None:
    """It is for the reply alone."""


def _put_key(keys: list[Any], args: list[Any], value: str | None) -> None:
    if value is not None:
        keys.append(value)


class _Converted:
    """Puts a value on the wire in another unit."""

    def __init__(self, write: Read) -> None:
        self._write = write

    def put(self, keys: list[Any], args: list[Any], value: Any) -> None:
        args.append(self._write(value))


class _Record:
    """Puts the fields of a record on the wire."""

    def __init__(self, name: str, of: Sequence[Field]) -> None:
        self._names = [f"{name}: {field.name}" for field in of]
        self._accepts = [field.wire.accepts if field.wire else (str,) for field in of]
        self._keys = sum(field.wire is None for field in of)
        if any(field.wire is None for field in of[self._keys :]):
            raise TypeError(f"the keys of a record come first: {name}")
        self._checked: set[tuple[type, ...]] = set()
        self._writes = [(place, field.wire.write) for place, field in enumerate(of) if field.wire and field.wire.write]

    def put(self, keys: list[Any], args: list[Any], record: Sequence[Any]) -> None:
        types = tuple(map(type, record))
        if types not in self._checked:
            _check(self._names, self._accepts, record)
            self._checked.add(types)
        if self._writes:
            record = list(record)
            for place, write in self._writes:
                record[place] = write(record[place])
        keys += record[: self._keys]
        args += record[self._keys :]


class _Items:
    """Puts a list on the wire: how many, and each."""

    def __init__(self, of: List) -> None:
        self._record = of.record
        self._item = _Record(of.name, of.fields)

    def put(self, keys: list[Any], args: list[Any], values: Sequence[Any]) -> None:
        args.append(len(values))
        for value in values:
            self._item.put(keys, args, value if self._record else (value,))


class ScriptReply:
    """A reply of some script: its tag in Lua, and how it is read."""

    def __init__(self, made: type, echoes: Sequence[str]) -> None:
        hints = get_type_hints(made, include_extras=True)
        names = [field.name for field in fields(made)]
        if answered := [name for name in echoes if name in names]:
            assert answered == names[: len(answered)], f"{made.__name__} begins with what is echoed"
        self.made = made
        self.tag = snake(made.__name__)
        of = [Field.of(name, hints[name]) for name in names[len(answered) :]]
        self.fields = {field.name: field.wire for field in of if field.wire}
        self._echoes = answered
        self._reads = [wire.read for wire in self.fields.values()]

    def read(self, values: Sequence[Any], script: Script[Any]) -> Any:
        """The reply to ``script``, from what is behind its tag.

        Raises:
            TypeError: these are not its fields.
        """
        if len(values) != len(self._reads):
            raise TypeError(f"{self.tag} came with {len(values)} of {len(self._reads)} fields")
        echoed = [getattr(script, name) for name in self._echoes]
        return self.made(*echoed, *[read(value) for read, value in zip(self._reads, values, strict=True)])


class _OfScript(Generic[T]):
    """What follows from the declaration of a script, once it is asked for: a process uses a third of all scripts."""

    def __init__(self, make: Callable[[type[Any]], T]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, script: object, owner: type) -> T:
        made = self._make(owner)
        setattr(owner, self._name, made)
        return made


DECLARED: Final[dict[str, type[Script[Any]]]] = {}
"""The scripts whose declarations are imported, by name: those that this process may run."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Script(Generic[R]):
    """A call of a script; ``R`` is the union of its replies."""

    name: ClassVar[str]
    """The name of its Lua file."""
    when_full: ClassVar[bool] = False
    """True if it runs though Redis is at its ``maxmemory``: it ends runs, deletes them, or saves the results of
    workers."""
    grows: ClassVar[bool] = False
    """True if it stores what clients send."""
    echoes: ClassVar[Sequence[str]] = ()
    """Fields that a reply of these names begins with: it has them from the script that was called, not from Lua."""
    shape: ClassVar[_OfScript[Shape]] = _OfScript(Shape)
    replies: ClassVar[_OfScript[Mapping[bytes, ScriptReply]]] = _OfScript(
        lambda script: {reply.tag.encode(): reply for reply in _replies(script)}
    )

    if not TYPE_CHECKING:
        __init__ = first

    def __init_subclass__(cls) -> None:
        # Frozen for who reads and checks the code: it would cost a third more to make one.
        postpone(cls, kw_only=True, eq=False, repr=False)
        cls.name = snake(cls.__name__)
        DECLARED[cls.name] = cls

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def pack(self) -> tuple[list[str], list[Value]]:
        """KEYS and ARGV.

        Raises:
            TypeError: a field is not of its declared type.
        """
        return self.shape.pack(tuple(vars(self).values()))

    def read(self, answer: Sequence[Any]) -> R:
        """Read the script's answer.

        Raises:
            NewerVersion: newer code has worked on this conversation. Nothing was written.
            TypeError: the answer is not a declared reply.
        """
        tag, *values = answer
        reply = self.replies.get(tag)
        if reply is None:
            if tag == NEWER.encode():
                raise NewerVersion(values[0].decode() if values else "")
            raise TypeError(f"{self.name} answered {tag!r}, which is none of its replies")
        result: R = reply.read(values, self)
        return result


def _replies(script: type[Script[Any]]) -> Iterator[ScriptReply]:
    bases: Iterable[Any] = script.__orig_bases__  # type: ignore[attr-defined]
    (declared,) = (get_args(base)[0] for base in bases if get_origin(base) is Script)
    for made in get_args(declared) or (declared,):
        yield ScriptReply(made, script.echoes)


def snake(name: str) -> str:
    """``HandBack`` as ``hand_back``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
