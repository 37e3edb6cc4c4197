"""Steps that wait because there is no room for them: no attempt, no time, no slot."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from palaver.errors import ErrorClass, Failure, ProviderDetails
from palaver.schemas.models import Usage
from palaver.steps.leases import Delivery, Lease, Stray
from palaver.steps.verdicts import Postpone
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import RunStatus, WaitReason
from tests.contract.store_driver import PAUSE, RESUME, StoreDriver


async def test_a_postponed_run_says_why_and_until_when(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    settled = await driver.postpone(lease)
    assert (settled.status, settled.deliveries) == ("running", ())
    run = await driver.get(run_id)
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.code) == ("provider_cooldown", "cooldown")
    due = await driver.redis.zscore(keys.due("00"), f"{run_id}/1")
    assert run.waiting.until is not None
    assert run.waiting.until.timestamp() * 1000 == pytest.approx(due, abs=1)
    event = (await driver.events(run_id))[-1]
    assert event.type == "run.waiting"
    assert event.data == {"step": "1", "reason": "provider_cooldown", "code": "cooldown", "delay": 60, "error": None}
    # The lease is used up: a repeat is answered, and writes nothing.
    assert (await driver.finish(lease)).status == "running"
    assert (await driver.get(run_id)).waiting == run.waiting
    assert (await driver.events(run_id))[-1] == event


async def test_postponing_costs_no_attempt_and_comes_first_afterwards(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    for _ in range(5):
        await driver.postpone(lease)
        assert await driver.sweep(run_id, "1") != []
        assert isinstance(await driver.try_claim(Delivery("model", run_id, lease.conversation_id, "1", 1)), Stray)
        (settled,) = await driver.hasten(run_id, "1")
        (delivery,) = settled.deliveries
        assert delivery.queue == "model.recovered"
        lease = await driver.claim(delivery)
    assert (lease.attempt, lease.try_number) == (1, 1)
    run = await driver.get(run_id)
    assert (run.waiting, run.status) == (None, RunStatus.RUNNING)


async def test_waiting_for_room_is_not_the_steps_time(driver: StoreDriver) -> None:
    began = time.monotonic()
    run_id, lease = await driver.begin()
    await driver.postpone(lease, 3600)
    step = await _step(driver, run_id)
    assert "first" not in step
    (settled,) = await driver.hasten(run_id, "1")
    lease = await driver.claim(settled.deliveries[0])
    await driver.retry(lease, delay=60)
    (settled,) = await driver.hasten(run_id, "1")
    lease = await driver.claim(settled.deliveries[0])
    before = (await _step(driver, run_id))["first"]
    await driver.postpone(lease, 3600)
    assert (await _step(driver, run_id))["first"] == before + 3_600_000
    (promoted,) = await driver.store.steps.promote([(lease.conversation_id, run_id, "1")])
    assert promoted is not None
    lease = await driver.claim(promoted.deliveries[0])
    assert lease.attempt == 2
    # No more than what has really passed, in whole milliseconds.
    assert 0 <= lease.elapsed <= time.monotonic() - began + 0.002


async def _step(driver: StoreDriver, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(await driver.redis.hget(keys.steps(run_id), "1"))
    return found


async def test_a_step_that_lacks_a_tool_knows_since_when(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    assert lease.lacking_for == 0
    missing = Postpone(2.0, 'look "up"', WaitReason.NO_WORKER)
    for _ in range(2):
        await driver.store.steps.settle(lease, missing)
        waiting = (await driver.get(run_id)).waiting
        assert waiting is not None
        assert (waiting.reason, waiting.code) == ("no_worker", 'look "up"')
        event = (await driver.events(run_id))[-1]
        assert event.data == {"step": "1", "reason": "no_worker", "code": 'look "up"', "delay": 2, "error": None}
        step = await _step(driver, run_id)
        await driver.redis.hset(keys.steps(run_id), "1", orjson.dumps({**step, "lacking_since": step["until"] - 9_000}))
        (settled,) = await driver.hasten(run_id, "1")
        lease = await driver.claim(settled.deliveries[0])
        assert 6.9 < lease.lacking_for < 9
        assert (lease.attempt, lease.try_number) == (1, 1)
    # It had its tool, and waited for something else: what was missing before counts no more.
    await driver.postpone(lease)
    (settled,) = await driver.hasten(run_id, "1")
    assert (await driver.claim(settled.deliveries[0])).lacking_for == 0


OUT = Failure.of(ErrorClass.CONNECTION, code="connect_refused", provider=ProviderDetails("fake", "echo"))


async def test_a_step_that_waits_for_the_end_of_an_outage_says_how_it_failed_and_for_how_long(
    driver: StoreDriver,
) -> None:
    run_id, lease = await driver.begin()
    assert lease.out_for is None

    async def out(lease: Lease) -> Lease:
        await driver.store.steps.settle(lease, Postpone(2.0, "outage", failure=OUT))
        step = await _step(driver, run_id)
        await driver.redis.hset(keys.steps(run_id), "1", orjson.dumps({**step, "out_since": step["until"] - 9_000}))
        (settled,) = await driver.hasten(run_id, "1")
        return await driver.claim(settled.deliveries[0])

    for _ in range(2):
        lease = await out(lease)
        run = await driver.get(run_id)
        assert (lease.attempt, lease.try_number) == (1, 1)
        assert lease.out_for is not None
        assert 6.9 < lease.out_for < 9
        assert run.current_steps[0].last_failure is not None
        assert run.current_steps[0].last_failure.code == "connect_refused"
    event = [each for each in await driver.events(run_id) if each.type == "run.waiting"][-1]
    assert event.data["error"]["code"] == "connect_refused"
    await driver.store.steps.settle(lease, Postpone(2.0, "outage", failure=OUT))
    waiting = (await driver.get(run_id)).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.code, waiting.error_class) == ("provider_cooldown", "outage", "connection")


@pytest.mark.parametrize("how", ["retry", "answer", "pause"])
async def test_the_time_of_an_outage_begins_again_once_the_step_met_something_else(
    driver: StoreDriver, how: str
) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.settle(lease, Postpone(2.0, "outage", failure=OUT))
    if how == "pause":
        await driver.act(run_id, PAUSE)
        await driver.act(run_id, RESUME)
        (settled,) = await driver.hasten(run_id, "1")
    else:
        (settled,) = await driver.hasten(run_id, "1")
        lease = await driver.claim(settled.deliveries[0])
        assert lease.out_for is not None
        # The way back after the outage is a part of it, and so is the wait for room to try it.
        for code in ("cooldown", "max_in_flight", "tokens_per_minute"):
            await driver.postpone(lease, code=code)
            (settled,) = await driver.hasten(run_id, "1")
            lease = await driver.claim(settled.deliveries[0])
            assert lease.out_for is not None
        if how == "retry":
            await driver.retry(lease)
        else:
            await driver.store.steps.settle(lease, Postpone(2.0, "cooldown", usage=Usage(model_calls=1)))
        (settled,) = await driver.hasten(run_id, "1")
    assert (await driver.claim(settled.deliveries[0])).out_for is None


async def test_the_time_without_a_tool_begins_again_once_the_step_was_tried_or_stood_still(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()

    async def missing(lease: Lease) -> Delivery:
        await driver.store.steps.settle(lease, Postpone(2.0, "look_up", WaitReason.NO_WORKER))
        step = await _step(driver, run_id)
        await driver.redis.hset(keys.steps(run_id), "1", orjson.dumps({**step, "lacking_since": 1}))
        (settled,) = await driver.hasten(run_id, "1")
        return settled.deliveries[0]

    async def tried(delivery: Delivery) -> Lease:
        lease = await driver.claim(delivery)
        assert lease.lacking_for > 1000
        return lease

    await driver.retry(await tried(await missing(lease)))
    (settled,) = await driver.hasten(run_id, "1")
    lease = await driver.claim(settled.deliveries[0])
    assert lease.lacking_for == 0
    settled = await driver.hand_back(await tried(await missing(lease)))
    lease = await driver.claim(settled.deliveries[0])
    assert lease.lacking_for == 0
    (settled,) = await driver.lose(await tried(await missing(lease)))
    lease = await driver.claim(settled.deliveries[0])
    assert lease.lacking_for == 0
    await missing(lease)
    await driver.act(run_id, PAUSE)
    acted = await driver.act(run_id, RESUME)
    assert (await driver.claim(acted.settled.deliveries[0])).lacking_for == 0


async def test_a_worker_that_claims_again_has_its_lease_although_a_cancel_came(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    settled = await driver.hand_back(lease)
    first = await driver.claim(settled.deliveries[0], nonce="n")
    await driver.store.runs.cancel(run_id)
    assert (await driver.claim(settled.deliveries[0], nonce="n")).fence == first.fence
    assert isinstance(await driver.try_claim(settled.deliveries[0], nonce="other"), Stray)


async def test_only_what_was_postponed_is_recalled(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    other, other_lease = await driver.begin()
    promote, step = driver.store.steps.promote, (lease.conversation_id, run_id, "1")
    assert await promote([step]) == [None]
    await driver.postpone(lease)
    await driver.postpone(other_lease)
    unknown = (lease.conversation_id, "run_00" + "0" * 26, "1")
    settled, none, another = await promote([step, unknown, (other_lease.conversation_id, other, "1")])
    assert none is None
    assert settled is not None
    assert another is not None
    assert [each.queue for each in (*settled.deliveries, *another.deliveries)] == ["model.recovered"] * 2
    assert await promote([step]) == [None]
    await driver.retry(await driver.claim(settled.deliveries[0]))
    # It backs off because an attempt of it failed: room at the provider changes nothing about that.
    assert await promote([step, unknown]) == [None, None]


async def test_a_run_that_is_damaged_keeps_no_other_from_its_delivery(
    driver: StoreDriver, caplog: pytest.LogCaptureFixture
) -> None:
    begun = [await driver.begin() for _ in range(3)]
    for _, lease in begun:
        await driver.postpone(lease)
    broken, _ = begun[1]
    await driver.redis.rename(keys.steps(broken), "aside{p00}")
    await driver.redis.set(keys.steps(broken), "no steps")
    first, none, last = await driver.store.steps.promote([(lease.conversation_id, run, "1") for run, lease in begun])
    await driver.redis.rename("aside{p00}", keys.steps(broken))
    assert none is None
    assert first is not None
    assert last is not None
    assert [each.run_id for each in (*first.deliveries, *last.deliveries)] == [begun[0][0], begun[2][0]]
    assert broken in caplog.text


async def test_a_cancel_does_not_wait_for_room(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.postpone(lease)
    settled = await driver.store.runs.cancel(run_id)
    assert settled.status == "cancelled"
    assert await driver.store.steps.promote([(lease.conversation_id, run_id, "1")]) == [None]


async def test_a_cancel_wins_over_postponing(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    second = await driver.submit(conversation_id=lease.conversation_id)
    await driver.store.runs.cancel(run_id)
    settled = await driver.postpone(lease)
    assert (settled.status, settled.next_run) == ("cancelled", second.run_id)
