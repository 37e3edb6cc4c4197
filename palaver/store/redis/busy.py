"""Marks of the shards in which something happens, for those who would else have to look at all of them (ADR 0126).

A mark is a key of another slot than the shard's, so never one with what it is about: it is a hint, that may be lost.
Who looks at what is marked looks at everything else, too, only seldom.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from redis.exceptions import RedisError

from palaver.processes.tasks import end
from palaver.store.redis import fleet_keys, keys
from palaver.store.redis.connection import Connection

FEW: Final = 16
"""Shards that are all looked at each time, and not marked."""
MARKED_AGAIN: Final = 30.0
"""Seconds after which a process that goes on in a shard marks it again."""


class BusyMarks:
    """The marks that this process makes: one for a shard in so many seconds, whatever it does there."""

    def __init__(self, redis: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._clock = clock
        self._until: dict[str, float] = {}
        self._unsaid: set[str] = set()
        self._saying: asyncio.Task[None] | None = None

    def touch(self, shard: str) -> None:
        """Mark a shard, soon: the caller does not wait for that."""
        now = self._clock()
        if now < self._until.get(shard, 0.0):
            return
        self._until[shard] = now + MARKED_AGAIN
        self._unsaid.add(shard)
        if self._saying is None or self._saying.done():
            self._saying = asyncio.create_task(self._say(), name="busy shards")

    def touch_of(self, key: keys.Key) -> None:
        """Mark the shard that a key is of, if it is of one."""
        if (shard := keys.shard_of_key(key)) is not None:
            self.touch(shard)

    async def close(self) -> None:
        """Say no more."""
        if self._saying is not None:
            await end(self._saying)

    async def _say(self) -> None:
        # Who is away, or refuses it, is not asked again for what is lost with it.
        with suppress(RedisError, OSError):
            while self._unsaid:
                shards, self._unsaid = sorted(self._unsaid), set()
                pipeline = self._redis.pipeline(transaction=False)
                for shard in shards:
                    pipeline.execute_command("HINCRBY", fleet_keys.BUSY, shard, 1)
                await pipeline.execute()
