"""A step costs Redis the same, however long its conversation is, and however many runs there are beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from palaver.config.settings import Settings
from palaver.schemas.models import Message, ToolCall
from palaver.steps.leases import Delivery
from palaver.steps.verdicts import Continue, ToolOutcome
from palaver.store import Store
from tests.contract.store_driver import StoreDriver
from tests.cost.meters import EVERY, fake, watch

SLACK = EVERY + 8
"""Less than one command of Redis; ids have a digit more."""
WORDS = "What comes before is not to be forgotten."


async def _after_messages(driver: StoreDriver, n: int) -> list[Delivery]:
    """A run behind so many messages."""
    said = [Message(role=role, content=WORDS) for role in ("user", "assistant") * (n // 2)]
    submitted = await driver.submit(input=(*said, Message(role="user", content=WORDS)))
    return list(submitted.deliveries)


async def _beside_runs(driver: StoreDriver, n: int) -> list[Delivery]:
    """A run beside so many others of its shard, all but three of them leased."""
    for i in range(n):
        submitted = await driver.submit()
        if i > 2:
            await driver.claim(submitted.deliveries[0], worker=f"w{i}")
    return list((await driver.submit()).deliveries)


async def _cost_of_a_step(prepare: Callable[[StoreDriver, int], Awaitable[list[Delivery]]], n: int) -> dict[str, float]:
    """Of the second step: the worker knows the log up to the first one."""
    async with fake() as (redis, meter):
        driver = StoreDriver(Store(redis, Settings(redis_url="redis://127.0.0.1:1/0", shards=1)), redis)
        (delivery,) = await prepare(driver, n)
        lease = await driver.claim(delivery)
        (delivery,) = (await driver.store.steps.settle(lease, _asks("c1"))).deliveries
        costs = watch(driver.store, meter())
        lease = await driver.claim(delivery, known=lease.log.position)
        await driver.store.steps.settle(lease, _asks("c2"))
    return costs.of


def _asks(call_id: str) -> Continue:
    """The model asks for an inline tool, which has answered."""
    call = ToolCall(id=call_id, name="calculator", arguments='{"x": 1}')
    answer = Message(role="tool", call_id=call.id, name=call.name, content="42")
    return Continue(Message(role="assistant", content="hm", tool_calls=(call,)), (ToolOutcome(answer),))


@pytest.mark.parametrize("prepare", [_after_messages, _beside_runs])
async def test_a_step_costs_the_same_among_few_and_among_many(
    prepare: Callable[[StoreDriver, int], Awaitable[list[Delivery]]],
) -> None:
    few, many = await _cost_of_a_step(prepare, 4), await _cost_of_a_step(prepare, 32)
    assert few.keys() == many.keys() == {"claim", "settle"}
    for script, cost in few.items():
        assert abs(many[script] - cost) <= SLACK, (script, cost, many[script])
