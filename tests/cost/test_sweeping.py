"""A sweeper's looks cost what the number of shards says, and of many it looks at a part."""

from __future__ import annotations

from typing import Any

from fakeredis import FakeAsyncRedis, FakeServer

from palaver.config.settings import Settings
from palaver.store import Store
from palaver.vocabulary.step_kinds import QUEUES
from tests.cost.meters import fake

_LOOKS = 4
"""Looks for what is due, and for what nobody claims, in a second."""


class Counting(FakeAsyncRedis):
    """A client that counts what it sends."""

    sent = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.sent += 1
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, *args: Any, **options: Any) -> Any:
        pipeline = super().pipeline(*args, **options)
        execute = pipeline.execute

        async def counted(*args: Any, **options: Any) -> Any:
            self.sent += len(pipeline.command_stack)
            return await execute(*args, **options)

        pipeline.execute = counted  # type: ignore[method-assign]
        return pipeline


async def _second(store: Store) -> None:
    """The looks of a sweeper in a second in which nothing is due."""
    for _ in range(_LOOKS):
        await store.due.due()
        for queue in QUEUES:
            await store.due.unclaimed(queue, 0.5, 16)
    await store.due.fill()
    await store.due.forget_expired()
    await store.due.forget_conversations()
    await store.lacking.forget_stale()
    await store.caps.allowed(0.5)


async def _commands(shards: int) -> int:
    redis = Counting(server=FakeServer())
    store = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0", shards=shards))
    # The first second loads the scripts.
    await _second(store)
    redis.sent = 0
    await _second(store)
    await redis.aclose()
    return redis.sent


async def test_a_sweeper_looks_at_a_part_of_many_shards() -> None:
    async with fake():
        one, few, many = [await _commands(shards) for shards in (1, 16, 256)]
    # The clock for each look, and the queues of tools.
    fixed = 15
    # In each look two commands for what is due and one for each queue, and four of what is done once.
    assert one <= fixed + 20
    assert few <= fixed + 16 * 20
    # All shards have one turn in a second, and one of what is forgotten in four.
    assert many <= fixed + 256 * 6.5
