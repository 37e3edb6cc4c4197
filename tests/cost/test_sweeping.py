"""A sweeper's looks cost what is going on, whatever the number of shards, and a fleet shares them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fakeredis import FakeServer

from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.redis import fleet_keys
from palaver.store.redis.rounds import EVERY, FULL_ROUND
from palaver.vocabulary.ids import all_shards
from palaver.vocabulary.step_kinds import QUEUES
from tests.contract.clock import TurnedRedis
from tests.cost.meters import fake

_LOOKS = 4
"""Looks for what is due, and for what nobody claims, in a second."""


class Counting(TurnedRedis):
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


class Fleet:
    """Workers that sweep a store, each on its own connection; seconds pass when they are told to."""

    def __init__(self, shards: int, workers: int) -> None:
        self.shards = shards
        self.clock = 0.0
        self._server = FakeServer()
        self.clients = [Counting(server=self._server) for _ in range(workers)]
        settings = Settings(redis_url="redis://127.0.0.1:1/0", shards=shards)
        self.stores = [Store(client, settings) for client in self.clients]
        for store in self.stores:
            store.rounds._clock = lambda: self.clock

    async def second(self, busy: int = 0) -> int:
        """Let a second pass, in which something happens in so many shards but nothing is due. Return how many commands
        all of them sent to look."""
        for client in self.clients:
            client.sent = 0
        for number, store in enumerate(self.stores):
            await store.rounds.share(f"w{number}")
            for _ in range(_LOOKS):
                await store.due.due()
                for queue in QUEUES:
                    await store.due.unclaimed(queue, 0.5, 16)
            await store.due.fill()
            await store.due.forget_expired()
            await store.due.forget_conversations()
            await store.lacking.forget_stale()
            await store.caps.allowed(0.5)
        self.clock += EVERY
        sent = sum(client.sent for client in self.clients)
        if busy:
            await self.clients[0].hset(fleet_keys.BUSY, mapping=dict.fromkeys(all_shards(busy), self.clock))
        return sent

    async def costs(self, busy: int = 0) -> int:
        """The commands of a second, once all know what they share and have loaded the scripts."""
        for _ in range(2):
            await self.second(busy)
        return await self.second(busy)


@asynccontextmanager
async def fleet(shards: int, workers: int = 1) -> AsyncIterator[Fleet]:
    async with fake():
        made = Fleet(shards, workers)
        yield made
        for client in made.clients:
            await client.aclose()


FIXED = 18
"""The clock for each look, the queues of tools, a place in the index of what is lacked; and who shares, and marks."""
WAITING = 5
"""What it costs to wait for a place among those who share."""
EACH = 2 * _LOOKS + len(QUEUES) * _LOOKS + 4
"""Commands for a shard that is looked at each time, in a second."""
ONCE = 2 + len(QUEUES) + 4
"""Those of a round."""


@pytest.mark.parametrize("shards", [1, 16])
async def test_a_few_shards_are_all_looked_at_each_time(shards: int) -> None:
    async with fleet(shards) as one:
        assert await one.costs() <= FIXED - 3 + shards * EACH


@pytest.mark.parametrize("workers", [1, 4, 20])
@pytest.mark.parametrize("shards", [128, 1024])
async def test_many_shards_cost_little_while_nothing_happens(shards: int, workers: int) -> None:
    async with fleet(shards, workers) as many:
        # Two look at each shard, once in a round; a round has a whole number of shards a look, for each visit.
        rounds = min(2, workers) * shards / FULL_ROUND + _LOOKS * min(workers, 16)
        assert await many.costs() <= min(workers, 16) * FIXED + rounds * ONCE + max(0, workers - 16) * WAITING


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("shards", [128, 1024])
async def test_where_little_happens_many_shards_cost_what_a_few_do(shards: int, workers: int) -> None:
    async with fleet(shards, workers) as many:
        idle = await many.costs()
        busy = await many.costs(busy=16)
        assert idle < busy <= idle + 16 * EACH


@pytest.mark.parametrize(("workers", "at_most"), [(1, 256), (4, 1024)])
async def test_where_all_are_busy_each_worker_looks_at_some_of_its_part(workers: int, at_most: int) -> None:
    async with fleet(1024, workers) as many:
        idle = await many.costs()
        assert await many.costs(busy=1024) <= idle + at_most * ONCE * 1.1
