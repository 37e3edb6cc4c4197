"""Looking through the lists of all shards as if they were one, a part at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from palaver.store.redis.connection import portions
from palaver.store.redis.keys import Key
from palaver.store.redis.visits import whole
from palaver.store.scripting.contracts.listing import FieldTest, Find, Index, Matches
from palaver.store.scripting.scripts import Scripts
from palaver.vocabulary.limits import count_exceeded, limit_of

_AT_ONCE: Final = 250
"""Members that one script looks at: 1 to 2 ms of Redis, in which no other client is served."""
_LIKELY: Final = 3
"""Each shard is asked for so many times its even part of a page, and for one more: few have more than that."""
_PATIENCE: Final = 1.0
"""Seconds after which a page ends where it is: others look for something, too."""
_TOGETHER: Final = 25
"""The number of records that are read at once: each may have some MB."""

Place = tuple[int, str]
"""The time (ms) that a member of a list has there, and its id."""
T = TypeVar("T")
Read = Callable[[Sequence[str]], Awaitable[Mapping[str, tuple[T, int]]]]
"""Reads those of these ids that fit, each with how many bytes it has."""


class ShardLists(NamedTuple):
    """The lists of one shard to look through."""

    shard: str
    hashes: str
    """The beginning of the keys of the hashes."""
    lists: Sequence[Key]


class Search(NamedTuple):
    """A search: the lists to look through, and the tests for what fits."""

    shards: Sequence[ShardLists]
    tests: tuple[FieldTest, ...]
    last: int | None = None
    """None beyond that time (ms)."""
    ascending: bool = False


class Part(NamedTuple):
    """A part of the lists that was looked through."""

    places: Sequence[Place]
    """The places of the members that passed the tests, in order."""
    looked: int
    bytes: int
    """Read by that."""
    end: Place | None
    """The place to go on from; None if the lists end."""


class ListPage(NamedTuple, Generic[T]):
    """A page of results, in order."""

    results: list[T]
    places: list[Place]
    """The place of each of them."""
    behind: Place | None
    """The place where the next page begins; None if there is none."""


async def look(scripts: Scripts, search: Search, place: Place | None, limit: int) -> Part:
    """The next part of the lists behind ``place``, with ``limit`` that passed the tests at most."""
    begun = await _asked(scripts, search, [(lists, place) for lists in search.shards], limit)
    replies = whole([lists.shard for lists in search.shards], [(lists.shard, reply) for lists, reply in begun])
    places = _in_order(search, replies)
    if more := dict(_cut_short(search, replies, places[:limit], limit)):
        begins = [(lists, more[lists.shard]) for lists in search.shards if lists.shard in more]
        replies += [(lists.shard, reply) for lists, reply in await _asked(scripts, search, begins, limit)]
        places = _in_order(search, replies)
    # Of a shard that was asked again, the second reply says where it ends.
    ends = [_end(reply) for reply in dict(replies).values() if not reply.ends]
    first = min if search.ascending else max
    end = first(ends) if ends else None
    seen = [member for member in places if end is None or member == end or first(member, end) == member]
    if len(seen) > limit:
        seen = seen[:limit]
        end = seen[-1]
    return Part(seen, sum(reply.looked for _, reply in replies), sum(reply.bytes for _, reply in replies), end)


async def _asked(
    scripts: Scripts, search: Search, begins: Sequence[tuple[ShardLists, Place | None]], limit: int
) -> list[tuple[ShardLists, Matches]]:
    """The replies of those shards whose servers answer, each to what is behind a place of its own."""
    most = _asked_for(limit, len(begins))
    answers = await scripts.run_for_each(
        begins,
        lambda begin: Find(
            hashes=begin[0].hashes,
            ascending=search.ascending,
            begin=begin[1] and begin[1][0],
            begin_id=begin[1] and begin[1][1],
            last=search.last,
            most_looked=_AT_ONCE,
            most_matches=most,
            lists=tuple(map(Index, begin[0].lists)),
            tests=search.tests,
        ),
    )
    return [(lists, reply) for (lists, _), reply in answers]


def _asked_for(limit: int, shards: int) -> int:
    """How many of a page each of so many shards is asked for."""
    return min(limit, 1 + ceil(_LIKELY * limit / shards))


def _cut_short(
    search: Search, replies: Iterable[tuple[str, Matches]], known: Sequence[Place], limit: int
) -> Iterator[tuple[str, Place]]:
    """The shards that may have more of a page than they were asked for, each with where its reply ends. ``known`` is
    what is known of the page."""
    most, first = _asked_for(limit, len(search.shards)), min if search.ascending else max
    for shard, reply in replies:
        if len(reply.members) == most < limit and not reply.ends:
            end = _end(reply)
            if len(known) < limit or first(end, known[-1]) == end:
                yield shard, end


def _in_order(search: Search, replies: Iterable[tuple[str, Matches]]) -> Sequence[Place]:
    """What passed the tests, of all shards."""
    members = ((member.at, member.id) for _, reply in replies for member in reply.members)
    return sorted(members, reverse=not search.ascending)


def _end(reply: Matches) -> Place:
    return reply.last_at or 0, reply.last_id or ""


async def find(scripts: Scripts, search: Search, read: Read[T], *, limit: int, place: Place | None) -> ListPage[T]:
    """A page of what fits, behind ``place``: few where they are long, or where many that do not fit lie between.

    One search of a process looks at a time, and those that go on and on leave Redis to others for as long as they had
    it: filters that nothing fits would keep everybody else waiting.
    """
    results, places, looked, looked_bytes, size = list[T](), list[Place](), 0, 0, 0
    clock, taken = asyncio.get_running_loop().time, 0.0
    end = clock() + _PATIENCE
    while True:
        async with scripts.searching:
            await asyncio.sleep(taken)
            began = clock()
            part = await look(scripts, search, place, limit - len(results))
            taken = clock() - began
        looked, looked_bytes = looked + part.looked, looked_bytes + part.bytes
        for some in portions(part.places, _TOGETHER):
            fitting = await read([member_id for _, member_id in some])
            for member in some:
                if member[1] in fitting:
                    one, long = fitting[member[1]]
                    results.append(one)
                    places.append(member)
                    size += long
                    if size > limit_of("answer_bytes"):
                        count_exceeded("answer_bytes")
                        return ListPage(results, places, member)
        if len(results) == limit and part.places:
            return ListPage(results, places, part.places[-1])
        if part.end is None:
            return ListPage(results, places, None)
        place = part.end
        for limited, much in (("list_looked", looked), ("list_bytes", looked_bytes)):
            if much >= limit_of(limited):
                count_exceeded(limited)
                return ListPage(results, places, place)
        if clock() > end:
            return ListPage(results, places, place)


def merged(pages: Sequence[ListPage[T]], *, limit: int, ascending: bool) -> ListPage[T]:
    """Return one page of several lists, up to where the first of their pages ends. What two have is taken from the
    first."""
    first, found = min if ascending else max, dict[str, tuple[Place, T]]()
    for page in pages:
        for place, result in zip(page.places, page.results, strict=True):
            found.setdefault(place[1], (place, result))
    ends = [page.behind for page in pages if page.behind is not None]
    end = first(ends) if ends else None
    listed = sorted(found.values(), key=itemgetter(0), reverse=not ascending)
    listed = [each for each in listed if end is None or first(each[0], end) == each[0]]
    if len(listed) > limit:
        listed = listed[:limit]
        end = listed[-1][0]
    return ListPage([result for _, result in listed], [place for place, _ in listed], end)
