"""Any order of calls by clients, workers and sweepers leaves the store whole, and every run ends.

The walk does what processes do, deliveries lost, doubled and late included, and looks at all keys after each step.
Hypothesis finds short, odd ways and makes them shorter; plain chance goes far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from features.stack.redis_server import RedisServer
from tests.contract.clients import Choose
from tests.contract.walker import Walker
from tests.contract.witness import Moves, WitnessedRedis

T = TypeVar("T")


class Walk(RuleBasedStateMachine):
    """Few rules with weights of their own: Hypothesis switches rules off in most examples, to see what that does."""

    connect: Callable[[], Awaitable[Any]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        redis = self.do(type(self).connect())
        redis.moves = Moves()
        self.walker = Walker(redis)

    def do(self, call: Awaitable[T]) -> T:
        async def wait() -> T:
            return await call

        return self.runner.run(wait())

    def teardown(self) -> None:
        try:
            self.do(self.walker.drive_to_the_end())
        finally:
            self.do(self.walker.redis.aclose())
            self.runner.close()

    @rule(data=st.data())
    def a_client(self, data: st.DataObject) -> None:
        self.do(self.walker.client(_choice(data)))

    @rule(data=st.data())
    def a_worker(self, data: st.DataObject) -> None:
        self.do(self.walker.worker(_choice(data)))

    @rule(data=st.data())
    def another_worker(self, data: st.DataObject) -> None:
        self.do(self.walker.worker(_choice(data)))

    @rule(data=st.data())
    def a_sweeper(self, data: st.DataObject) -> None:
        self.do(self.walker.sweeper(_choice(data)))

    @invariant()
    def everything_is_whole(self) -> None:
        self.do(self.walker.check())


def _choice(data: st.DataObject) -> Choose:
    return lambda options: data.draw(st.sampled_from(options))


_BUDGET: Any = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in (0, 2, 3))])
@pytest.mark.slow
async def test_long_ways(redis: Any, seed: int) -> None:
    choose, walker = Random(seed).choice, Walker(redis)
    for _ in range(300):
        await choose([*[walker.client] * 3, *[walker.worker] * 8, walker.sweeper, walker.sweeper])(choose)
        await walker.check()
    await walker.drive_to_the_end()


@pytest.mark.slow
def test_any_order_of_calls_on_a_real_server(server: RedisServer) -> None:
    class OnReal(Walk):
        @staticmethod
        async def connect() -> Any:
            client = WitnessedRedis.from_url(server.url)
            await client.flushall()
            return client

    run_state_machine_as_test(OnReal, settings=settings(max_examples=30, stateful_step_count=50, **_BUDGET))
