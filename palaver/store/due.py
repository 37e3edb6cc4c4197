"""What sweepers do: find what needs attention and attend to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from palaver.leases import Queue, Settled
from palaver.settings import Settings
from palaver.store import keys
from palaver.store.scripts import Scripts
from palaver.store.steps import settled


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that may be due: a step of a run, its ``start`` or its ``end``."""

    run_id: str
    what: str


class Due:
    """The due index and the ready indexes of every shard."""

    def __init__(self, redis: Redis, scripts: Scripts, settings: Settings) -> None:
        self._redis = redis
        self._scripts = scripts
        self.shards = tuple(f"{shard:02x}" for shard in range(settings.shards))

    async def due(self, limit: int = 200) -> tuple[list[Attention], float]:
        """What is due now, by Redis's clock, and the seconds until the next thing will be (a day at most)."""
        seconds, micros = await self._redis.time()
        now = seconds * 1000 + micros // 1000
        pipeline = self._redis.pipeline(transaction=False)
        for shard in self.shards:
            pipeline.zrange(keys.due(shard), "-inf", now, byscore=True, offset=0, num=limit)
            pipeline.zrange(keys.due(shard), f"({now}", "+inf", byscore=True, offset=0, num=1, withscores=True)
        replies = await pipeline.execute()
        found = [_attention(member) for members in replies[::2] for member in members]
        upcoming = [(pairs[0][1] - now) / 1000 for pairs in replies[1::2] if pairs]
        return found, min(upcoming, default=86400.0)

    async def unclaimed(self, queue: Queue, older_than: float, limit: int) -> list[Attention]:
        """Steps delivered to ``queue`` more than ``older_than`` seconds ago that nobody claimed, oldest first."""
        seconds, micros = await self._redis.time()
        before = seconds * 1000 + micros // 1000 - int(older_than * 1000)
        pipeline = self._redis.pipeline(transaction=False)
        for shard in self.shards:
            pipeline.zrange(keys.ready(shard, queue), "-inf", before, byscore=True, offset=0, num=limit)
        return [_attention(member) for members in await pipeline.execute() for member in members][:limit]

    async def attend(
        self, things: Sequence[Attention], *, worker: str = "", unclaimed_after: float = 1.0
    ) -> list[Settled]:
        """Act on ``things``; what was not due after all is left alone.

        ``worker`` ends that worker's leases on these steps now; it is known to have died.
        """
        conversations = self._redis.pipeline(transaction=False)
        for thing in things:
            conversations.hget(keys.run(thing.run_id), "conversation")
        known = await conversations.execute() if things else []
        acted = [(thing, found.decode()) for thing, found in zip(things, known, strict=True) if found]
        await self._forget(thing for thing, found in zip(things, known, strict=True) if not found)
        replies = await self._scripts.run_all(
            ("attend", keys.of_run(thing.run_id, conversation), (thing.what, worker, int(unclaimed_after * 1000)))
            for thing, conversation in acted
        )
        return [
            settled(reply, thing.run_id, conversation)
            for reply, (thing, conversation) in zip(replies, acted, strict=True)
            if reply[0] == b"attended"
        ]

    async def depths(self) -> dict[str, tuple[int, float]]:
        """For each queue: how many steps are delivered and unclaimed, and the seconds the oldest has waited."""
        seconds, micros = await self._redis.time()
        now = seconds + micros / 1e6
        found: dict[str, tuple[int, float]] = {}
        for queue in ("model", "tools"):
            count, oldest = 0, 0.0
            for shard in self.shards:
                count += await self._redis.zcard(keys.ready(shard, queue))
                first = await self._redis.zrange(keys.ready(shard, queue), 0, 0, withscores=True)
                oldest = max([oldest, *(now - score / 1000 for _, score in first)])
            found[queue] = (count, oldest)
        return found

    async def _forget(self, things: Iterable[Attention]) -> None:
        """Drop what points at a run that is gone (deleted by hand, or evicted)."""
        pipeline = self._redis.pipeline(transaction=False)
        for thing in things:
            shard, member = thing.run_id[4:6], f"{thing.run_id}/{thing.what}"
            pipeline.zrem(keys.due(shard), member)
            pipeline.zrem(keys.ready(shard, "model"), member)
            pipeline.zrem(keys.ready(shard, "tools"), member)
        if pipeline:
            await pipeline.execute()


def _attention(member: bytes) -> Attention:
    run_id, _, what = member.decode().partition("/")
    return Attention(run_id, what)
