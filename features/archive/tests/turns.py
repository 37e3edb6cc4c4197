"""Conversations that rest, and leave the store."""

from __future__ import annotations

from typing import Any, Final

from palaver.store.redis import keys
from tests.contract.store_driver import StoreDriver

RETENTION: Final = 3600


async def evict(redis: Any, conversation: str, *runs: str) -> None:
    """What Redis and a sweeper do once the retention is over."""
    await redis.delete(keys.conversation(conversation), keys.log(conversation), *map(keys.run, runs))
    await redis.delete(*(keys.feed(run) for run in runs))
    for key in ("{p00}:convs", "{p00}:convs:updated", "{p00}:convs:expiring", "{p00}:ended"):
        await redis.zrem(key, conversation, *runs)
    for key in ("{p00}:runs", "{p00}:runs:completed"):
        await redis.zrem(key, *runs)


async def one_turn(driver: StoreDriver) -> tuple[str, str]:
    """A conversation that rests, and its run."""
    run_id, lease = await driver.begin()
    await driver.finish(lease)
    return lease.conversation_id, run_id
