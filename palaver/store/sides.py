"""The door of the store to features: what one of them has there, and what becomes of that when a tenant leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from functools import cache
from re import Pattern
from typing import Any, Final, NamedTuple, TypeVar

from palaver.config.settings import Settings
from palaver.feature import features
from palaver.store.redis.capacity import Capacity
from palaver.store.redis.connection import Connection, Pipeline
from palaver.store.redis.due import member
from palaver.store.redis.keys import Key, promised
from palaver.store.redis.rounds import Rounds
from palaver.store.scripting.scripts import Scripts
from palaver.telemetry.exposition import Samples

_ERASED_AT_ONCE: Final = 200
"""Things of a list that are erased in one script."""
P = TypeVar("P")
Placed = tuple[str, dict[str, Any]]
"""The place of a record in its section of an export, as a text, and what it says."""


class Ground(NamedTuple):
    """The base that a part of the store is made on."""

    redis: Connection
    scripts: Scripts
    settings: Settings
    capacity: Capacity
    rounds: Rounds


Part = Callable[[Callable[[Ground], P]], P]
"""`palaver.store.Store.part`."""


class Erasable(NamedTuple):
    """A key that goes, whatever it is."""

    key: Key
    kind: str
    """The kind that it is counted as; empty if it is not counted."""
    number: int
    """For how many of these it counts, if it is there."""


class Belongings(NamedTuple):
    """A part of what a tenant has of a feature."""

    counts: Key
    """The counts of what was erased, beside these."""
    erasable: tuple[Erasable, ...]
    unlist: Callable[[Pipeline], object]
    """Takes them out of the lists that they are in. Called once they are gone: the lists say what is left."""


class StoreSide:
    """The side of a feature that is in the store. Each method may be left out."""

    kind: str | None = None
    """The kind that its things are counted as in receipts of erasures, a name that no other has. None: they are not."""
    begins_runs: bool = False
    """True if what it keeps begins runs: then that is erased before runs are."""
    section: int | None = None
    """The number of its section in an export, from 9 on for a new feature: one that no other has. It stands in cursors,
    and so stays. None: it has none."""

    def marks(self, tag: str) -> Sequence[Key]:
        """The counts of what was erased of a tenant: while one is there, the scripts keep nothing beside it."""
        return ()

    def traces(self, tag: str) -> Sequence[Key]:
        """Keys that are there as long as a tenant has something of it."""
        return ()

    def traces_in(self, shard: str, tag: str) -> Sequence[Key]:
        """Keys of a tenant in a shard, which its part of scripts writes when a run changes: gone at the end."""
        return ()

    async def catch_up(self, redis: Connection, scripts: Scripts, shard: str) -> bool:
        """Do some of what is still to be written to `traces_in` in a shard, and tell whether there may be more. An
        erasure asks once no run of the tenant is there."""
        return False

    async def erase_elsewhere(self, tag: str) -> bool:
        """Erase some of what a tenant has outside of the store, once no run and no conversation of it is there, and
        tell whether there was any."""
        return False

    def shared_in(self, shard: str) -> Sequence[Key]:
        """Sorted sets of a shard that have members of all tenants, each with its owner in front."""
        return ()

    def streams_in(self, shard: str) -> Sequence[Key]:
        """Streams of a shard that have entries of all tenants."""
        return ()

    async def some_of(self, redis: Connection, tag: str) -> Belongings | None:
        """Return a part of what a tenant has; None if it has nothing any more."""
        return None

    def sweep(self, pipeline: Pipeline, shard: str, tag: str) -> None:
        """Remove what may have been written again of a tenant in a shard: the last of its erasure."""

    def check_place(self, place: str) -> None:
        """Raise ValueError for a text that is no place in its section."""

    def export(self, part: Part[Any], tag: str, place: str) -> AsyncGenerator[Placed, None]:
        """Yield what a tenant has behind a place, the empty one to begin with."""
        raise NotImplementedError

    async def samples(self, part: Part[Any]) -> Samples:
        """Read its metrics."""
        return {}


class ListedSide(StoreSide):
    """The side of a feature of whose things each tenant has a list."""

    kind: str
    due: Key | None = None
    """An index of all tenants, by when something of it is due; None: there is none."""
    place: Pattern[str]
    """The places in its section of an export."""

    def listed(self, tag: str) -> Key:
        """The list of a tenant, by name."""
        raise NotImplementedError

    def erasure(self, tag: str) -> Key:
        """The counts of what was erased of a tenant."""
        raise NotImplementedError

    def keys_of(self, tag: str, name: str) -> Sequence[Key]:
        """The keys of one of them; the first is there as long as it is."""
        raise NotImplementedError

    def due_member(self, tag: str, name: str) -> str:
        """The place of one of them in the index."""
        return member(tag, name)

    def marks(self, tag: str) -> Sequence[Key]:
        return (self.erasure(tag),)

    def traces(self, tag: str) -> Sequence[Key]:
        return (self.listed(tag),)

    async def some_of(self, redis: Connection, tag: str) -> Belongings | None:
        names = [name.decode() for name in await redis.zrange(self.listed(tag), 0, _ERASED_AT_ONCE - 1)]
        if not names:
            return None
        erasable = [Erasable(promised(self.listed(tag)), "", 0)]
        for name in names:
            counted, *others = self.keys_of(tag, name)
            erasable += [Erasable(counted, self.kind, 1), *(Erasable(key, "", 0) for key in others)]
        return Belongings(self.erasure(tag), tuple(erasable), lambda pipeline: self.unlist(pipeline, tag, names))

    def unlist(self, pipeline: Pipeline, tag: str, names: Sequence[str]) -> None:
        """Take things that are gone out of all lists."""
        if self.due is not None:
            pipeline.zrem(self.due, *(self.due_member(tag, name) for name in names))
        # Last: it says what is left to do.
        pipeline.zrem(self.listed(tag), *names)

    def check_place(self, place: str) -> None:
        if not self.place.fullmatch(place):
            raise ValueError(place)


@cache
def sides() -> Mapping[str, StoreSide]:
    """Return what the installed features have in the store, by their names."""
    return {name: feature.load(feature.store) for name, feature in features().items() if feature.store}


def exporting() -> Iterator[tuple[int, StoreSide]]:
    """Yield those that have a section in an export, and its number. Raises ValueError for two of one number: the
    things of one would be missing."""
    numbers = set[int]()
    for name, side in sides().items():
        if side.section is not None:
            if side.section in numbers:
                raise ValueError(f"{name} has a section in an export whose number another feature has: {side.section}")
            numbers.add(side.section)
            yield side.section, side
