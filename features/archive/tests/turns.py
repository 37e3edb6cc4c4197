"""Conversations that rest, and leave the store."""

from __future__ import annotations

from typing import Any, Final

from palaver.store.redis import keys
from palaver.vocabulary.ids import tenant_of
from palaver.vocabulary.lifecycle import RunStatus
from tests.contract.store_driver import StoreDriver

RETENTION: Final = 3600


async def evict(redis: Any, conversation: str, *runs: str) -> None:
    """What Redis and a sweeper do once the retention is over."""
    await redis.delete(keys.conversation(conversation), keys.log(conversation), *map(keys.run, runs))
    for run in runs:
        await redis.delete(keys.feed(run))
    for key in (keys.expiring("00"), keys.ended("00")):
        await redis.zrem(key, conversation, *runs)
    for owner in {*keys.ALL_TENANTS, keys.owner(tenant_of(conversation))}:
        for key in (keys.conversations("00", "", owner), keys.conversations("00", ":updated", owner)):
            await redis.zrem(key, conversation)
        for status in (None, *RunStatus):
            await redis.zrem(keys.runs("00", status, owner), "", *runs)


async def one_turn(driver: StoreDriver) -> tuple[str, str]:
    """A conversation that rests, and its run."""
    run_id, lease = await driver.begin()
    await driver.finish(lease)
    return lease.conversation_id, run_id
