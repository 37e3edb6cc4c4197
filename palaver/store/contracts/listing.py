"""How lists of runs are looked through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from palaver.store.contracts.declaration import Script
from palaver.store.keys import Key


class RunTest(NamedTuple):
    """What a field of a run's hash must be for the run to be worth reading."""

    field: str
    kind: Literal["has", "set", "unset", "from", "to"]
    """``has``: the text is in it. ``from``, ``to``: it is a number, and at least that, or at most."""
    text: str = ""


class RunIndex(NamedTuple):
    """A list of runs by time of creation."""

    key: Key


class FoundRun(NamedTuple):
    """A run that passed the tests."""

    created_at: int
    """ms."""
    id: str


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Runs that passed the tests, newest first."""

    runs: tuple[FoundRun, ...]
    looked: int
    """Runs looked at."""
    bytes: int
    """Read of them."""
    last_at: int | None
    last_id: str | None
    """The last one of these; go on behind it."""
    ends: bool
    """There are no more."""


class FindRuns(Script[FoundRuns]):
    """Look through lists of runs of a shard as if they were one, newest first, until enough are found or looked at. A
    run whose status changes meanwhile is in exactly one of the lists, so it is not missed."""

    prefix: str
    """What the keys of the shard begin with."""
    before: int | None
    before_id: str | None
    """Behind this run; None for the newest of those created earlier."""
    oldest: int | None
    """None created earlier; ms."""
    most_looked: int
    most_found: int
    lists: tuple[RunIndex, ...]
    tests: tuple[RunTest, ...]
