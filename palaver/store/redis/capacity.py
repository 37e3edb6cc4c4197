"""The capacity of the store: unfinished runs and used memory, against their limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Final

from redis.exceptions import RedisError, ResponseError

from palaver.config.settings import Settings
from palaver.errors import NoRoom
from palaver.late import dataclass
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.store.redis.visits import ask_each, is_away, whole
from palaver.telemetry.outage_log import outage_reason
from palaver.vocabulary.ids import all_shards, parts_of_tenant
from palaver.vocabulary.limits import count_exceeded

_FRESH: Final = 1.0
"""Seconds for which a memory reading is reused: a process asks Redis no more often, however many runs are submitted."""

_REFUSALS: Final = {"OOM": "memory", "MISCONF": "disk", "READONLY": "replica", "NOREPLICAS": "replicas"}

_COUNTED_FOR: Final = 10.0
"""Seconds for which a count of the runs in very many shards is reused."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that Redis uses, its ``maxmemory``, and the share of that above which no new run is accepted; 0 means
    that there is no limit, or that it is unknown."""

    used: int = 0
    most: int = 0
    limit: float = 0.0


class Capacity:
    """Refuses new runs, conversations and messages before Redis would refuse to write."""

    def __init__(
        self,
        redis: Connection,
        settings: Settings,
        taken: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``taken`` says how many bytes this process has asked Redis to store since it began."""
        self._redis = redis
        self._taken = taken
        self._shards = all_shards(settings.shards)
        self._max_runs = settings.max_runs
        self._max_percent = settings.max_memory_percent
        self._clock = clock
        self._memory = Memory()
        self._looked_at: float | None = None
        self._counted = 0
        self._counted_at: float | None = None
        self._taken_before = 0
        """The number of bytes taken in before the reading was requested."""
        self._refusal: str | None = None
        self._asked_at: float | None = None

    async def memory(self) -> Memory:
        """The memory reading, at most a second old."""
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= _FRESH:
            # Set before the answer: others go on with the last reading, and one question is enough.
            self._looked_at = now
            taken = self._taken()
            self._memory = await self._look()
            self._taken_before = taken
        return self._memory

    async def nearly_full(self) -> bool:
        """Tell whether the free memory has to be saved for the existing runs. A rush fills it between two readings, so
        the bytes that this process has taken in since then count."""
        memory = await self.memory()
        return 0 < memory.limit <= memory.used + self._taken() - self._taken_before

    async def admit(self) -> None:
        """Allow a request that makes the store grow and ends no run.

        Raises:
            NoRoom: ``store_nearly_full``.
        """
        if await self.nearly_full():
            count_exceeded("memory")
            raise NoRoom("store_nearly_full", "the store has no memory left for more")

    async def require_writes(self) -> None:
        """See that the store takes what makes it grow. Raises what Redis raises if it does not: its disk or its memory
        is full, or it is a replica."""
        key = keys.never_written()
        if not is_away(self._redis, key):
            # Refused before it is looked at; and if it is not, it does nothing.
            await self._redis.set(key, b"", xx=True)

    async def refusal(self) -> str | None:
        """Why the store takes no writes, as `WaitReason.STORE` has it, at most a second old; None if it takes them, or
        if that is not known."""
        now = self._clock()
        if self._asked_at is None or now - self._asked_at >= _FRESH:
            # As with memory: before the answer.
            self._asked_at, refusal = now, None
            try:
                await self.require_writes()
            except (RedisError, OSError) as error:
                refusal = _REFUSALS.get(outage_reason(error).partition(" ")[0].rstrip(":"))
            self._refusal = refusal
        return self._refusal

    async def runs_of_a_shard(self) -> int:
        """Entries of a shard's due index beyond which it takes no run on. Where a tenant has only a few of the shards,
        these have room for as many as all, as long as the count of all is not reached."""
        parts = parts_of_tenant(len(self._shards))
        if parts < len(self._shards) and await self._all_runs() >= self._max_runs:
            return 1
        return ceil(self._max_runs / parts)

    async def _all_runs(self) -> int:
        """The runs of those shards that answer, as they were lately."""
        now = self._clock()
        if self._counted_at is None or now - self._counted_at >= _COUNTED_FOR:
            # As with memory: before the answer.
            self._counted_at = now
            self._counted = sum(size for _, (size,) in await self._sizes())
        return self._counted

    async def _sizes(self) -> list[tuple[str, Sequence[int]]]:
        return await ask_each(self._redis, self._shards, lambda pipeline, shard: pipeline.zcard(keys.due(shard)))

    async def runs(self) -> int:
        """Unfinished runs, about: those that are worked on or wait for a time count twice.

        It is the size of the due index, which has an entry for each of them: no counter that could drift.
        """
        return sum(size for _, (size,) in whole(self._shards, await self._sizes()))

    async def _look(self) -> Memory:
        try:
            info = await self._redis.info("memory")
        except ResponseError:
            # The user may not run INFO, or the server does not know it: then the server itself refuses writes.
            return Memory()
        # Buffers for replicas and the AOF do not count towards Redis's memory limit.
        apart = int(info.get("mem_not_counted_for_evict", 0))
        most = int(info.get("maxmemory", 0))
        used = max(0, int(info.get("used_memory", 0)) - apart)
        return Memory(used, most, most * self._max_percent / 100)
