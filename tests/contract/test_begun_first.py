"""Runs that have begun go before those that have not, and now and then stand in line with them."""

from __future__ import annotations

import orjson

from palaver.schemas.models import Message
from palaver.steps.verdicts import Continue, Postpone
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import WaitReason
from tests.contract.store_driver import StoreDriver


async def test_a_run_stands_in_line_once_and_then_with_every_sixteenth_call(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    (delivery,) = submitted.deliveries
    queues = [delivery.queue]
    for _ in range(34):
        lease = await driver.claim(delivery)
        settled = await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))
        (delivery,) = settled.deliveries
        queues.append(delivery.queue)
    in_line = [number for number, queue in enumerate(queues, start=1) if queue == "model"]
    assert in_line == [1, 16, 32]
    assert set(queues) == {"model", "model.recovered"}


async def test_calls_of_tools_stand_in_their_own_line(driver: StoreDriver) -> None:
    _, deliveries = await driver.turn("a", "b")
    assert [each.queue for each in deliveries] == ["tools", "tools"]


async def test_a_retried_call_of_a_run_that_has_begun_goes_before_as_well(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    (delivery,) = (await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    await driver.retry(await driver.claim(delivery))
    (settled,) = await driver.hasten(run_id, "2")
    assert [each.queue for each in settled.deliveries] == ["model.recovered"]


async def test_what_nobody_can_do_does_not_go_before_what_somebody_can(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    (delivery,) = (await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    lease = await driver.claim(delivery)
    await driver.store.steps.settle(lease, Postpone(2.5, "tool:look_up", WaitReason.NO_WORKER))
    step = orjson.loads(await driver.redis.hget(keys.steps(run_id), "2"))
    await driver.redis.hset(keys.steps(run_id), "2", orjson.dumps({**step, "lacking_since": 1}))
    (settled,) = await driver.hasten(run_id, "2")
    assert [each.queue for each in settled.deliveries] == ["model"]
