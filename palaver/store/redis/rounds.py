"""Rounds over the shards: which of them a sweeper looks at now.

A few are all looked at each time. Many are shared by those who sweep, each taking those for which its own name comes
first in an order that all of them know. Of its part, each looks at the shards that are marked (`busy`), and with the
one whose name comes second at all of them once in half a minute: that needs no mark, and bears one of the two being
wrong.
"""

from __future__ import annotations

import hashlib
import heapq
import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from typing import Any, Final

from redis.exceptions import RedisError

from palaver.config.settings import Settings
from palaver.store.redis import fleet_keys
from palaver.store.redis.busy import FEW, MARKED_AGAIN
from palaver.store.redis.connection import Connection
from palaver.vocabulary.ids import all_shards

SEATS: Final = 16
"""Sweepers that share the shards. Others wait until one of them is gone."""
EVERY: Final = 1.0
"""Seconds between two looks at who shares, and at what is marked."""
SILENCE: Final = 3.0
"""Seconds without a sign of one who shares, after which others have its part."""
FULL_ROUND: Final = 30.0
"""Seconds in which all shards are looked at that are not marked."""
_BUSY_FOR: Final = MARKED_AGAIN + 15.0
"""Seconds for which a mark holds: a process that goes on in the shard has marked it again by then."""
_MOST: Final = 256
"""Marked shards that are looked at in a second: more have to wait for the next one."""
_FORGOTTEN: Final = 4 * SILENCE


class Rounds:
    """The rounds of this process."""

    def __init__(self, redis: Connection, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._clock = clock
        self.shards = all_shards(settings.shards)
        self.few = len(self.shards) <= FEW
        self._last: dict[str, str] = {}
        """The last shard that was looked at in each round."""
        self._seated = False
        self._shared_at = -EVERY
        self._signs: dict[str, tuple[bytes, float]] = {}
        """The last sign of each who shares, and when it was first seen."""
        self._sharing: frozenset[str] = frozenset()
        self._weights: dict[str, Sequence[int]] = {}
        self._marks: dict[str, bytes | None] = {}
        self._busy_until: dict[str, float] = {}
        self._seen_to: Sequence[str] = sorted(self.shards)
        """The shards that are looked at now and then."""
        self._part: Collection[str] = frozenset(self.shards)
        """Those of them whose first this process is."""
        self._busy: Sequence[str] = sorted(self.shards)

    def has(self, shard: str) -> bool:
        """Tell whether a shard is this process's to look at whenever there is something."""
        return self.few or shard in self._part

    @property
    def sweepers(self) -> int:
        """The number of those who share the shards, as far as is known."""
        return max(1, len(self._sharing))

    def turn(self, visit: str, a_second: float) -> Sequence[str]:
        """The shards that are looked at now by visits of which there are so many ``a_second``."""
        if self.few:
            return self.shards
        at_once = min(max(FEW, ceil(len(self._busy) / a_second)), int(_MOST / a_second))
        return sorted({*self._next(visit, self._busy, at_once), *self.seldom(visit, a_second)})

    def seldom(self, visit: str, a_second: float = 1.0) -> Sequence[str]:
        """The same of visits for which it is early enough when the shard has its turn without being marked."""
        if self.few:
            return self.shards
        at_once = ceil(len(self._seen_to) / (FULL_ROUND * a_second))
        return self._next(f"all {visit}", self._seen_to, at_once)

    async def share(self, sweeper: str) -> None:
        """Take a part of the shards as ``sweeper``, and hear what is marked, as far as that is due. While that is not
        say, all of them are this process's, and marked."""
        now = self._clock()
        if self.few or now - self._shared_at < EVERY:
            return
        self._shared_at = now
        try:
            await self._take_part(sweeper, now)
        except (RedisError, OSError):
            self._signs, self._sharing, self._marks = {}, frozenset(), {}
            self._part = frozenset(self.shards)
            self._seen_to = self._busy = sorted(self.shards)

    async def _take_part(self, sweeper: str, now: float) -> None:
        sign = [("HINCRBY", fleet_keys.SWEEPERS, sweeper, 1)]
        *_, signs = await self._ask(*(sign if self._seated else ()), ("HGETALL", fleet_keys.SWEEPERS))
        others, gone = self._heard({name.decode(): said for name, said in signs.items()}, sweeper, now)
        # Two that began at once may have taken the last seat.
        seated = sweeper in sorted({*others, sweeper})[:SEATS] if self._seated else len(others) < SEATS
        if self._seated and not seated:
            gone.append(sweeper)
        self._divide(frozenset({*others, sweeper} if seated else others), sweeper)
        part = sorted(self._part)
        commands: list[Sequence[str | int]] = [*sign] if seated and not self._seated else []
        commands += [("HDEL", fleet_keys.SWEEPERS, *gone)] if gone else []
        commands += [("HMGET", fleet_keys.BUSY, *part)] if part else []
        answers = await self._ask(*commands) if commands else []
        self._seated = seated
        if part:
            self._hear(dict(zip(part, answers[-1], strict=True)), now)
        self._busy = [shard for shard in part if self._busy_until.get(shard, 0.0) > now]

    def _heard(self, signs: Mapping[str, bytes], sweeper: str, now: float) -> tuple[set[str], list[str]]:
        """The others who share, and those who are gone for long. By signs that change: no clock but this one's counts,
        and one that is met for the first time is taken for living."""
        before, self._signs = self._signs, {}
        for name, sign in signs.items():
            known = before.get(name)
            self._signs[name] = known if known is not None and known[0] == sign else (sign, now)
        silent = {name: now - at for name, (_, at) in self._signs.items() if name != sweeper}
        living = {name for name, seconds in silent.items() if seconds <= SILENCE}
        return living, [name for name, seconds in silent.items() if seconds > _FORGOTTEN]

    def _divide(self, sharing: frozenset[str], sweeper: str) -> None:
        """Have the part that falls to ``sweeper``, where these share the shards."""
        if sharing == self._sharing:
            return
        self._sharing = sharing
        self._weights = {name: self._weights.get(name) or _weights(name, len(self.shards)) for name in sharing}
        firsts, seconds = [], []
        for place, shard in enumerate(self.shards):
            best = heapq.nlargest(2, sharing, key=lambda name: (self._weights[name][place], name))
            if sweeper in best:
                seconds.append(shard)
                if sweeper == best[0]:
                    firsts.append(shard)
        self._seen_to, self._part = sorted(seconds), frozenset(firsts)
        # What is new here is taken for marked now, if it was ever.
        self._marks = {shard: mark for shard, mark in self._marks.items() if shard in self._part}

    def _hear(self, marks: Mapping[str, bytes | None], now: float) -> None:
        for shard, mark in marks.items():
            if mark != self._marks.get(shard):
                self._marks[shard] = mark
                self._busy_until[shard] = now + _BUSY_FOR

    def _next(self, visit: str, shards: Sequence[str], number: int) -> Sequence[str]:
        """So many of these, behind those of the last time."""
        begin = bisect_right(shards, self._last.get(visit, ""))
        some = [*shards[begin : begin + number], *shards[: max(0, min(begin, begin + number - len(shards)))]]
        if some:
            self._last[visit] = some[-1]
        return some

    async def _ask(self, *commands: Sequence[str | int]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return await pipeline.execute()


def _weights(sweeper: str, shards: int) -> Sequence[int]:
    """A number for each shard, by which sweepers have their order there: a sweeper that comes or goes moves the shards
    that were or will be its own, and no others."""
    return struct.unpack(f"<{shards}I", hashlib.shake_128(sweeper.encode()).digest(4 * shards))
