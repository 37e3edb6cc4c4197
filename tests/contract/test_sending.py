"""Deliveries that the scripts send themselves, because the broker is the store's own server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from palaver.config.settings import Settings
from palaver.delivery.deliveries import QUEUE_NAMES
from palaver.schemas.models import Message
from palaver.steps.leases import Delivery
from palaver.steps.verdicts import Continue
from palaver.steps.wire import delivery_in, in_redis
from palaver.store import Store
from palaver.store.redis import keys
from tests.contract.store_driver import AGENT, StoreDriver
from tests.redis_cluster import ON_CLUSTER
from workers.broker.reading import let_in

pytestmark = pytest.mark.skipif(ON_CLUSTER, reason="a cluster is no broker")

ODD = 'say "hé" \\ @RUN@ %1 🙂'.replace(" ", "_")
"""A name that has whatever text within text within a pattern could go wrong by."""


class Queues:
    """The lists of the broker."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    async def take(self) -> list[Delivery]:
        """Take all messages out, in order, and read each as a worker does. Each is as Python would have written it."""
        taken: list[Delivery] = []
        for queue in QUEUE_NAMES:
            while (raw := await self._redis.rpop(queue)) is not None:
                message = let_in(raw, queue)
                assert message is not None
                delivery = delivery_in(queue, message["headers"], message["body"].encode())
                assert delivery is not None
                assert orjson.loads(raw) == orjson.loads(in_redis(delivery, "palaver@redis"))
                taken.append(delivery)
        return taken


@pytest.fixture
def queues(redis: Any) -> Queues:
    return Queues(redis)


@pytest.fixture
async def driver(redis: Any, settings: Settings) -> AsyncIterator[StoreDriver]:
    """One whose store sends."""
    store = Store(redis, settings, send=True)
    yield StoreDriver(store, redis)
    await store.feeds.close()


async def test_what_becomes_ready_lies_in_its_queue_and_nobody_else_is_to_send_it(
    driver: StoreDriver, queues: Queues
) -> None:
    submitted = await driver.submit()
    assert submitted.deliveries == ()
    (first,) = await queues.take()
    assert first == Delivery("model", submitted.run_id, first.conversation_id, "1", 1, "fake/echo")
    lease = await driver.claim(first)
    assert await driver.ask(lease, "a", "b") == []
    tools = await queues.take()
    assert [(each.queue, each.step, each.number) for each in tools] == [("tools", "1/a", 1), ("tools", "1/b", 1)]
    for each in tools:
        assert await queues.take() == []
        assert (await driver.answer(await driver.claim(each))).deliveries == ()
    (second,) = await queues.take()
    assert (second.queue, second.step) == ("model.recovered", "2")


async def test_a_call_stands_in_line_where_it_does_elsewhere(driver: StoreDriver, queues: Queues) -> None:
    await driver.submit()
    seen: list[str] = []
    for _ in range(17):
        (delivery,) = await queues.take()
        seen.append(delivery.queue)
        lease = await driver.claim(delivery)
        await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))
    await queues.take()
    assert [number for number, queue in enumerate(seen, start=1) if queue == "model"] == [1, 16]


async def test_any_name_arrives(driver: StoreDriver, queues: Queues) -> None:
    await driver.submit(agent=AGENT.model_copy(update={"model": f"fake/{ODD}", "name": "support"}))
    (delivery,) = await queues.take()
    assert delivery.title == f"fake/{ODD} for support"


async def test_a_second_delivery_of_a_step_says_so(driver: StoreDriver, queues: Queues) -> None:
    submitted = await driver.submit()
    (delivery,) = await queues.take()
    lease = await driver.claim(delivery)
    assert (await driver.retry(lease)).deliveries == ()
    assert await queues.take() == []
    await driver.hasten(submitted.run_id, "1")
    assert await queues.take() == [delivery._replace(number=2)]


async def test_a_queue_that_does_not_take_it_leaves_it_to_the_caller(
    driver: StoreDriver, queues: Queues, redis: Any
) -> None:
    await redis.set("model", "somebody's")
    submitted = await driver.submit()
    (delivery,) = submitted.deliveries
    assert (delivery.queue, delivery.step) == ("model", "1")
    await redis.delete("model")
    assert await queues.take() == []


async def test_a_submit_that_is_repeated_sends_again_what_may_be_lost(driver: StoreDriver, queues: Queues) -> None:
    """Its answer was lost: nobody knows whether the script had come to its end before a failover."""
    # The server knows the script from here on, so that it is no first try that gets lost.
    await driver.submit()
    await queues.take()
    with driver.answers_get_lost():
        await driver.submit()
    first, second = await queues.take()
    assert first == second


@pytest.mark.parametrize("elsewhere", ["redis://127.0.0.1:1/1", "amqp://127.0.0.1:1"])
async def test_a_broker_elsewhere_is_left_to_the_caller(
    redis: Any, settings: Settings, queues: Queues, elsewhere: str
) -> None:
    store = Store(redis, settings.model_copy(update={"broker_url": elsewhere}), send=True)
    driver = StoreDriver(store, redis)
    submitted = await driver.submit()
    assert [each.step for each in submitted.deliveries] == ["1"]
    assert await queues.take() == []
    assert await redis.zcard(keys.ready("00", "model")) == 1
