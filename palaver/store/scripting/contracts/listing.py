"""Searches through lists of runs and of conversations; and how long lists are."""

from __future__ import annotations

from typing import Literal, NamedTuple

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.declaration import Script


class FieldTest(NamedTuple):
    """A condition on a field of a hash, without which the hash is not worth reading."""

    field: str
    kind: Literal["has", "entry", "status", "set", "unset", "from", "to"]
    """``has``: the text is in it. ``entry``: it is JSON, and the text is an entry of it. ``from``, ``to``: it is a
    number, and at least that, or at most. ``status``: that of a conversation is in the text, between commas."""
    text: str = ""


class Index(NamedTuple):
    """A list by time."""

    key: Key


class Member(NamedTuple):
    """One of a list that passed the tests."""

    at: int
    """Its time there; ms."""
    id: str


@dataclass(frozen=True, slots=True)
class Matches:
    """The members that passed the tests, in order."""

    members: tuple[Member, ...]
    looked: int
    """The number of members that were looked at."""
    bytes: int
    """Read of them."""
    last_at: int | None
    last_id: str | None
    """The last one of these; go on behind it."""
    ends: bool
    """There are no more."""


class Find(Script[Matches]):
    """Look through lists of a shard as if they were one, until enough are found or looked at. A run whose status
    changes meanwhile is in exactly one of the lists, so it is not missed."""

    hashes: str
    """The beginning of the keys of the hashes."""
    ascending: bool
    """The oldest first; else the newest."""
    begin: int | None
    begin_id: str | None
    """Behind this one; without an id, behind all of that millisecond, or before them if it is ascending."""
    last: int | None
    """None beyond it; ms."""
    most_looked: int
    most_matches: int
    lists: tuple[Index, ...]
    tests: tuple[FieldTest, ...]


class Length(NamedTuple):
    """The length of a list."""

    length: int
    first: int
    """The lowest score in it; 0 if it is empty."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of lists, in the order in which they were asked for."""

    lists: tuple[Length, ...]


class Measure(Script[Lengths]):
    """Tell how long sorted sets of a shard are."""

    due: Key
    """One of its keys."""
    oldest: str | None
    newest: str | None
    """The scores between which members count, as ZCOUNT takes them; both or none."""
    lists: tuple[str, ...]
    """Their keys without the hash tag."""
