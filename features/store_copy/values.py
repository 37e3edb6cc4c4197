"""Values of Redis, read in slices, and the commands that make one out of another.

Each command bears being repeated, and none needs another version of the server than 7.0.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from palaver.store.redis.connection import StreamEntry, portions

Command = tuple[Any, ...]
Ask = Callable[[Sequence[Command]], Awaitable[list[Any]]]
"""Puts commands to a server; an answer is None where there is no such key."""
MEMBERS: Final = 200
"""Members of a hash or a sorted set in a slice. A small one comes whole, and may have some more."""
ENTRIES: Final = 50
"""Entries of a stream in a slice."""
_PUT: Final = 500
"""Members, or names, in one command."""
NOTHING: Final = b"none"
_NEVER: Final = b"0-0"


class _Commands(NamedTuple):
    """The commands for values with members."""

    scan: str
    find: str
    put: str
    remove: str
    size: str


_MEMBERED: Final = {
    b"hash": _Commands("HSCAN", "HMGET", "HSET", "HDEL", "HLEN"),
    b"zset": _Commands("ZSCAN", "ZMSCORE", "ZADD", "ZREM", "ZCARD"),
}
KINDS: Final = frozenset((*_MEMBERED, b"string", b"stream"))
"""The kinds of values that a store has."""


class StreamState(NamedTuple):
    """The numbers that a stream has beside its entries."""

    length: int
    last: bytes
    deleted: bytes
    added: int


class Glance(NamedTuple):
    """A value as far as its first slice goes."""

    kind: bytes
    expires: int
    """Unix time in milliseconds; negative: never."""
    first: Any
    """A text; members, by name; or entries."""
    cursor: int
    """The place behind the slice, of values with members."""
    stream: StreamState | None = None

    @property
    def whole(self) -> bool:
        """True if there is nothing behind the slice."""
        return self.cursor == 0 and (self.stream is None or len(self.first) == self.stream.length)


_ABSENT: Final = Glance(NOTHING, -2, None, 0)


class Value(NamedTuple):
    """A key of a server, and the first slice of what it has."""

    key: bytes
    ask: Ask
    glance: Glance

    async def members(self) -> AsyncIterator[Mapping[bytes, Any]]:
        """Yield the members of a hash or a sorted set, slice after slice; some may come twice."""
        if self.glance.kind == NOTHING:
            return
        yield self.glance.first
        cursor, scan = self.glance.cursor, _MEMBERED[self.glance.kind].scan
        while cursor:
            ((cursor, members),) = await self.ask([(scan, self.key, cursor, "COUNT", MEMBERS)])
            yield dict(members)

    async def find(self, kind: bytes, names: Sequence[bytes]) -> Sequence[Any]:
        """Return what it has at each of these names; None where there is nothing."""
        if self.glance.whole:
            there = self.glance.first or {}
            return [there.get(name) for name in names]
        found: list[Any] = []
        for some in portions(names, _PUT):
            (answer,) = await self.ask([(_MEMBERED[kind].find, self.key, *some)])
            found += answer or [None] * len(some)
        return found

    async def size(self, kind: bytes) -> int:
        """Return the number of its members."""
        if self.glance.whole:
            return len(self.glance.first or ())
        (number,) = await self.ask([(_MEMBERED[kind].size, self.key)])
        return int(number)

    async def entries(self) -> AsyncIterator[StreamEntry]:
        """Yield the entries of a stream, in order."""
        if self.glance.kind == NOTHING:
            return
        some = self.glance.first
        while some:
            for entry in some:
                yield entry
            if self.glance.whole:
                return
            (some,) = await self.ask([("XRANGE", self.key, b"(" + some[-1][0], "+", "COUNT", ENTRIES)])


async def glance_at(ask: Ask, keys: Sequence[bytes]) -> list[Value]:
    """Return the values of these keys."""
    facts = await ask([command for key in keys for command in (("TYPE", key), ("PEXPIRETIME", key))])
    kinds = dict(zip(keys, zip(facts[::2], facts[1::2], strict=True), strict=True))
    looks = [(key, _looks(key, kind)) for key, (kind, _) in kinds.items()]
    answers = iter(await ask([command for _, commands in looks for command in commands]))
    return [Value(key, ask, _glance(*kinds[key], [next(answers) for _ in commands])) for key, commands in looks]


def _looks(key: bytes, kind: bytes) -> list[Command]:
    if kind in _MEMBERED:
        return [(_MEMBERED[kind].scan, key, 0, "COUNT", MEMBERS)]
    if kind == b"stream":
        return [("XINFO STREAM", key), ("XRANGE", key, "-", "+", "COUNT", ENTRIES)]
    return [("GET", key)] if kind == b"string" else []


def _glance(kind: bytes, expires: int, answers: Sequence[Any]) -> Glance:
    if kind in _MEMBERED:
        cursor, members = answers[0]
        # A key that has just gone has no members.
        return Glance(kind, expires, dict(members), int(cursor)) if members or cursor else _ABSENT
    if kind == b"stream" and answers[0] is not None:
        told, entries = answers
        state = StreamState(
            told["length"], told["last-generated-id"], told["max-deleted-entry-id"], told["entries-added"]
        )
        return Glance(kind, expires, entries, 0, state)
    if kind == b"string" and answers[0] is not None:
        return Glance(kind, expires, answers[0], 0)
    return _ABSENT if kind in KINDS else Glance(kind, expires, None, 0)


async def changes(source: Value, target: Value) -> AsyncIterator[Command]:
    """Yield the commands that make the target like the source, which is there; nothing if it is like it."""
    key, kind, expires = source.key, source.glance.kind, source.glance.expires
    if source.glance == target.glance and source.glance.whole:
        return
    if target.glance.kind not in (kind, NOTHING):
        yield "UNLINK", key
        target = target._replace(glance=_ABSENT)
    if kind == b"string":
        if source.glance != target.glance:
            yield "SET", key, source.glance.first, *(("PXAT", expires) if expires >= 0 else ())
        return
    anew = target.glance.kind == NOTHING
    async for command in _of_members(source, target) if kind in _MEMBERED else _of_stream(source, target):
        anew = anew or command[0] == "UNLINK"
        yield command
    there = -1 if anew else target.glance.expires
    if expires >= 0 and expires != there:
        yield "PEXPIREAT", key, expires
    elif expires < 0 <= there:
        yield "PERSIST", key


async def _of_members(source: Value, target: Value) -> AsyncIterator[Command]:
    key, kind = source.key, source.glance.kind
    commands, new = _MEMBERED[kind], 0
    async for members in source.members():
        there = await target.find(kind, list(members))
        new += there.count(None)
        put = [item for item, value in zip(members.items(), there, strict=True) if item[1] != value]
        for some in portions(put, _PUT):
            ordered = ((value, name) if kind == b"zset" else (name, value) for name, value in some)
            yield commands.put, key, *(word for pair in ordered for word in pair)
    if await target.size(kind) + new == await source.size(kind):
        return
    async for members in target.members():
        there = await source.find(kind, list(members))
        gone = [name for name, value in zip(members, there, strict=True) if value is None]
        for names in portions(gone, _PUT):
            yield commands.remove, key, *names


async def _of_stream(source: Value, target: Value) -> AsyncIterator[Command]:
    """Entries are added at the end and removed anywhere: what cannot have come of that is written anew."""
    key, now, before = source.key, source.glance.stream, target.glance.stream
    assert now is not None
    if before is None:
        async for entry in source.entries():
            yield _added(key, entry)
    else:
        async for edit in _edits(source, target, before):
            if edit is not None:
                yield edit
                continue
            yield "UNLINK", key
            before = None
            async for entry in source.entries():
                yield _added(key, entry)
            break
    if before == now:
        return
    if before is None and not now.length:
        # There is no other way to make an empty one.
        yield "XADD", key, now.last, b"-", b"-"
        yield "XTRIM", key, "MAXLEN", 0
    yield "XSETID", key, now.last, "ENTRIESADDED", now.added, "MAXDELETEDID", now.deleted


async def _edits(source: Value, target: Value, before: StreamState) -> AsyncIterator[Command | None]:
    """Yield the commands that lead from one stream to the other; None if none do."""
    key, there, last, now = source.key, target.entries(), _order(before.last), source.glance.stream
    assert now is not None
    # That nothing was deleted cannot be said of one of which something was.
    if last > _order(now.last) or now.deleted == _NEVER != before.deleted:
        yield None
        return
    have, first = await anext(there, None), True
    async for entry in source.entries():
        if first and have is not None and _order(have[0]) < _order(entry[0]):
            # What is trimmed counts for less than what is deleted.
            yield "XTRIM", key, "MINID", entry[0]
        while have is not None and _order(have[0]) < _order(entry[0]):
            if not first:
                yield _deleted(key, have, now)
            have = await anext(there, None)
        first = False
        if have is not None and have[0] == entry[0]:
            if have[1] != entry[1]:
                yield None
                return
            have = await anext(there, None)
        elif _order(entry[0]) > last:
            yield _added(key, entry)
        else:
            yield None
            return
    if first and have is not None:
        yield "XTRIM", key, "MAXLEN", 0
        return
    while have is not None:
        yield _deleted(key, have, now)
        have = await anext(there, None)


def _deleted(key: bytes, entry: StreamEntry, now: StreamState) -> Command | None:
    return None if now.deleted == _NEVER else ("XDEL", key, entry[0])


def _added(key: bytes, entry: StreamEntry) -> Command:
    number, fields = entry
    return "XADD", key, number, *(word for pair in fields.items() for word in pair)


def _order(number: bytes) -> tuple[int, int]:
    milliseconds, _, sequence = number.partition(b"-")
    return int(milliseconds), int(sequence)
