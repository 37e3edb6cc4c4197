"""The tools of workers: each distinct set of declarations is stored once, however many workers have it.

Two versions of a worker, as while a deployment rolls, have two sets. What the workers of a queue had stays known after
the last of them has gone: a submit to a stack that is scaled to zero names tools that will be there. Once
workers of that queue have told of another set for an hour, they have replaced it. Each key is read and written by
itself: they may be on any slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from palaver.late import dataclass
from palaver.store.fleet.fleet import KNOWN_FOR
from palaver.store.redis import fleet_keys
from palaver.store.redis.connection import Connection, portions
from palaver.tools.declared import ToolDeclaration, ToolSet, declarations_in
from palaver.vocabulary.limits import count_exceeded, limit_of

_REMEMBERED: Final = limit_of("tools_remembered")
"""Seconds for which the tools of a queue without workers stay known."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class DeclaredSet:
    """The tools of a version of a worker."""

    tools: Sequence[ToolDeclaration]
    seen_at: datetime
    """The last time at which a worker told that it has them; UTC."""
    since: datetime
    """The first time, as long as it stayed known; UTC."""
    queues: frozenset[str]
    """The queues of the workers that have them, or had."""


class Tools:
    """The sets of tools that workers declare."""

    def __init__(self, redis: Connection) -> None:
        self._redis = redis

    async def publish(self, tools: ToolSet, queues: Sequence[str]) -> None:
        """Say that a worker of ``queues`` has these tools, with each of its heartbeats."""
        name = fleet_keys.tool_set(tools.digest)
        seconds, _ = await self._redis.time()
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.expire(name, _REMEMBERED)
        pipeline.zadd(fleet_keys.TOOL_SETS, {f"{tools.digest} {queue}": seconds for queue in queues})
        pipeline.zrange(fleet_keys.TOOL_SETS, 0, -1, withscores=True)
        known, _, members = await pipeline.execute()
        replaced = [
            member
            for member, seen in members
            if seen < seconds - (KNOWN_FOR if _split(member)[1] in queues else _REMEMBERED)
        ]
        if replaced:
            for some in portions(replaced):
                pipeline.zrem(fleet_keys.TOOL_SETS, *some)
            # What no worker has any more takes no room for a month: a server's list may change all the time.
            stay = {_split(member)[0] for member, _ in members if member not in replaced}
            for digest in {_split(member)[0] for member in replaced} - stay:
                pipeline.delete(fleet_keys.tool_set(digest))
        if not known:
            pipeline.set(name, b"%d\n%b" % (seconds, tools.text), ex=_REMEMBERED)
        if replaced or not known:
            await pipeline.execute()

    async def declared(self, known: Mapping[str, DeclaredSet] = MappingProxyType({})) -> Mapping[str, DeclaredSet]:
        """Return each set by its digest, the sets that were seen last first. Those that are ``known`` already are not
        read again."""
        seen: dict[str, float] = {}
        queues: dict[str, set[str]] = {}
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.zrange(fleet_keys.TOOL_SETS, 0, -1, withscores=True)
        (members,) = await pipeline.execute()
        for member, seconds in reversed(members):
            digest, queue = _split(member)
            seen.setdefault(digest, seconds)
            queues.setdefault(digest, set()).add(queue)
        digests = _newest_of_each_first(members)[: limit_of("tool_sets")]
        if len(seen) > len(digests):
            count_exceeded("tool_sets")
        unknown = [digest for digest in digests if digest not in known]
        for digest in unknown:
            pipeline.get(fleet_keys.tool_set(digest))
        read: dict[str, DeclaredSet] = dict(known)
        for digest, text in zip(unknown, await pipeline.execute() if unknown else (), strict=True):
            if text is not None:
                await asyncio.sleep(0)  # a full set takes some milliseconds of the loop
                since, _, declarations = text.partition(b"\n")
                read[digest] = DeclaredSet(declarations_in(declarations), _EPOCH, _at(int(since)), frozenset())
        return {
            digest: replace(read[digest], seen_at=_at(seen[digest]), queues=frozenset(queues[digest]))
            for digest in sorted(digests, key=seen.__getitem__, reverse=True)
            if digest in read
        }


def _newest_of_each_first(members: Sequence[tuple[bytes, float]]) -> list[str]:
    """The digests of ``members``, which are sorted by their time: the newest of each queue, and then all others. One
    queue whose tools change all the time does not hide those of others."""
    newest: list[str] = []
    others: list[str] = []
    queues: set[str] = set()
    for member, _ in reversed(members):
        digest, queue = _split(member)
        (others if queue in queues else newest).append(digest)
        queues.add(queue)
    return [*dict.fromkeys((*newest, *others))]


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _split(member: bytes) -> tuple[str, str]:
    """The digest and the queue of a member of the list of sets."""
    digest, _, queue = member.decode().partition(" ")
    return digest, queue
