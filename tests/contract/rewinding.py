"""Redis as it is after a power cut or a failover: as it was a moment before."""

from __future__ import annotations

from typing import Any

Snapshot = dict[bytes, tuple[int, bytes]]


async def snapshot(redis: Any) -> Snapshot:
    """What a replica has that will not hear of anything else."""
    return {name: (max(0, await redis.pttl(name)), await redis.dump(name)) for name in await redis.keys("*")}


async def rewind(redis: Any, to: Snapshot) -> None:
    """Everything is as it was then; the clock has gone on. As with a failover, nobody sees what is in between."""
    before = await redis.time()
    pipeline = redis.pipeline(transaction=True)
    pipeline.flushall()
    for name, (ttl, value) in to.items():
        pipeline.restore(name, ttl, value)
    await pipeline.execute()
    while await redis.time() < (before[0], before[1] + 1000):
        pass
