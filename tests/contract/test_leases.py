"""Leases that end without a verdict: expiry, loss, poison, handing back; and deadlines."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.errors import StaleLease
from palaver.steps.leases import Renewal, Stray
from palaver.store import Store
from palaver.store.fleet.fleet import Interruption
from palaver.store.redis import keys
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.ids import new_run_id
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.contract.store_driver import TOOL_ERROR, StoreDriver
from tests.waiting import aeventually

INTERRUPTED = "Interrupted: the worker that ran this call was lost. It may or may not have taken effect."


async def test_a_lease_expires_by_the_clock_of_redis(driver: StoreDriver, redis: Any, settings: Settings) -> None:
    brief = StoreDriver(Store(redis, settings.model_copy(update={"lease_seconds": 0.1})), redis)
    run_id, lease = await brief.begin()

    async def redelivered() -> list[Any]:
        found, upcoming = await brief.store.due.due()
        assert found or 0 < upcoming <= 0.1
        return [each for settled in await brief.store.due.sweep(found) for each in settled.deliveries]

    (delivery,) = await aeventually(redelivered)
    assert (delivery.queue, delivery.step, delivery.number) == ("model.recovered", lease.step, 2)
    assert "step.lost" in await brief.kinds(run_id)
    assert (await brief.kinds(run_id))[-1] == "message.discarded"


async def test_a_renewed_lease_is_not_taken(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    _, gone = await driver.begin()
    await driver.finish(gone)
    await redis.zadd(keys.due("00"), {f"{run_id}/1": 1})

    held = [lease, gone, replace(lease, step="7")]
    assert await driver.store.steps.renew(held) == [Renewal.PROLONGED, Renewal.GONE, Renewal.GONE]
    assert await driver.store.steps.renew([]) == []
    (nothing,) = await driver.sweep(run_id, lease.step)
    assert nothing.deliveries == ()
    await driver.finish(lease)


async def test_of_a_worker_that_seems_dead_only_what_it_did_not_renew_is_taken(driver: StoreDriver, redis: Any) -> None:
    run_id, _ = await driver.begin()
    until = int(await redis.zscore(keys.due("00"), f"{run_id}/1"))
    assert await driver.store.due.held("w1", until + 1) == [DueItem(run_id, "1")]
    assert await driver.store.due.held("w1", until) == await driver.store.due.held("w2", until + 1) == []
    for worker, before in (("w1", until), ("w2", until + 1)):
        (nothing,) = await driver.sweep(run_id, "1", worker=worker, unrenewed_before=before)
        assert nothing.deliveries == ()
    (lost,) = await driver.sweep(run_id, "1", worker="w1", unrenewed_before=until + 1)
    assert lost.deliveries
    await driver.finish(await driver.claim(lost.deliveries[0], "w2"))


async def test_a_lease_that_is_over_is_not_renewed_by_the_next_one_of_the_same_worker(driver: StoreDriver) -> None:
    """A process that was stopped for long may find the step again in its queue, and still have the old one in hand."""
    run_id, old = await driver.begin()
    (lost,) = await driver.sweep(run_id, old.step, worker="w1")
    new = await driver.claim(lost.deliveries[0])

    assert await driver.store.steps.renew([old, new]) == [Renewal.GONE, Renewal.PROLONGED]


@pytest.mark.slow
async def test_renewing_many_keeps_the_order(driver: StoreDriver) -> None:
    begun = [await driver.begin() for _ in range(120)]
    for _, lease in begun[::3]:
        await driver.finish(lease)

    answers = await driver.store.steps.renew([lease for _, lease in begun])
    assert answers == [Renewal.GONE if i % 3 == 0 else Renewal.PROLONGED for i in range(120)]


async def test_only_the_named_worker_loses_its_leases(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()

    (nothing,) = await driver.sweep(run_id, lease.step, worker="somebody else")
    assert nothing.deliveries == ()
    (lost,) = await driver.sweep(run_id, lease.step, worker="w1")
    assert [each.queue for each in lost.deliveries] == ["model.recovered"]


async def test_two_sweepers_do_it_once(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    (first,) = await driver.hasten(run_id, lease.step)
    (second,) = await driver.sweep(run_id, lease.step)

    assert (len(first.deliveries), second.deliveries) == (1, ())
    assert (await driver.kinds(run_id)).count("step.lost") == 1


async def test_a_poison_step_fails_its_run(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    for _ in range(2):
        (lost,) = await driver.lose(lease)
        lease = await driver.claim(lost.deliveries[0])
    (lost,) = await driver.lose(lease)

    assert (lost.status, lost.deliveries) == ("failed", ())
    run = await driver.get(run_id)
    assert run.error is not None
    assert (run.error["class"], run.error["step"], run.error["attempt"]) == ("worker_lost", "1", 3)
    assert run.error.keys() == TOOL_ERROR.to_error(step="1", attempt=1).keys()


async def test_a_tool_is_not_started_twice(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1")
    lease = await driver.claim(delivery)
    (lost,) = await driver.lose(lease)

    assert [each.step for each in lost.deliveries] == ["2"]
    assert await driver.results(run_id) == [("c1", INTERRUPTED)]
    result = next(event for event in await driver.events(run_id) if event.type == "tool.finished")
    assert result.data["error"]["class"] == "tool_interrupted"
    assert result.data["error"].keys() == TOOL_ERROR.to_error(step="1/c1", attempt=1).keys()
    with pytest.raises(StaleLease):
        await driver.answer(lease)
    assert (await driver.get(run_id)).usage.tool_calls == 1


async def test_an_idempotent_tool_is_started_again_until_it_is_poison(driver: StoreDriver) -> None:
    run_id, (delivery, other) = await driver.turn("c1", "c2", idempotent=["c1"])
    await driver.claim(other, "w2")
    for number in (2, 3):
        (lost,) = await driver.lose(await driver.claim(delivery))
        (delivery,) = lost.deliveries
        assert (delivery.queue, delivery.number) == ("tools.recovered", number)
    (lost,) = await driver.lose(await driver.claim(delivery))

    assert lost.status == "failed"
    ended = "Interrupted: the run ended (error). It may or may not have taken effect."
    assert await driver.results(run_id) == [("c1", ended), ("c2", ended)]


async def test_handing_back_is_no_loss(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    for _ in range(5):
        (delivery,) = (await driver.hand_back(lease)).deliveries
        assert delivery.queue == "model.recovered"
        lease = await driver.claim(delivery)
    assert (lease.attempt, lease.try_number) == (1, 1)
    assert "step.lost" not in await driver.kinds(run_id)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("begun", [True, False])
async def test_handing_back_a_tool(driver: StoreDriver, idempotent: bool, begun: bool) -> None:
    run_id, (delivery,) = await driver.turn("c1", idempotent=["c1"] if idempotent else [])
    settled = await driver.hand_back(await driver.claim(delivery), begun=begun)

    if begun and not idempotent:
        assert [each.step for each in settled.deliveries] == ["2"]
        assert "was stopped" in (await driver.results(run_id))[0][1]
    else:
        assert [each.step for each in settled.deliveries] == ["1/c1"]
        assert await driver.results(run_id) == []


async def test_a_delivery_that_got_lost_is_sent_again(driver: StoreDriver, redis: Any) -> None:
    submitted = await driver.submit()
    assert await driver.store.due.unclaimed("model", 10, 100) == []
    (thing,) = await driver.store.due.unclaimed("model", 0, 100)
    assert await driver.store.due.unclaimed("tools", 0, 100) == []

    (nothing,) = await driver.store.due.sweep([thing], unclaimed_after=10)
    assert nothing.deliveries == ()
    (again,) = await driver.store.due.sweep([thing], unclaimed_after=0)
    assert [(each.queue, each.number) for each in again.deliveries] == [("model.recovered", 2)]
    await driver.claim(submitted.deliveries[0])
    (nothing,) = await driver.store.due.sweep([thing], unclaimed_after=0)
    assert nothing.deliveries == ()


async def test_a_run_that_nobody_begins_in_time_expires(driver: StoreDriver) -> None:
    soon = await driver.store.runs.now() + timedelta(seconds=0.5)
    submitted = await driver.submit(start_by=soon)
    await driver.behind(soon)

    assert await driver.try_claim(submitted.deliveries[0]) == Stray("deadline")
    (settled,) = await driver.sweep(submitted.run_id, "end")
    assert settled.status == "expired"
    assert (await driver.get(submitted.run_id)).stop_reason is StopReason.DEADLINE


async def test_nothing_begins_behind_the_deadline(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1")
    await driver.redis.hset(keys.run(run_id), "deadline", 2)

    assert await driver.try_claim(deliveries[0]) == Stray("deadline")
    (settled,) = await driver.hasten(run_id, "end")
    assert settled.status == "expired"


async def test_start_by_means_nothing_once_begun(driver: StoreDriver) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1)
    run_id, lease = await driver.begin(start_by=soon)
    (settled,) = await driver.hasten(run_id, "end")

    assert settled.status == "running"
    run = await driver.get(run_id)
    due = await driver.redis.zscore(keys.due("00"), f"{run_id}/end")
    whole = run.times.deadline - run.times.created_at
    assert due == (run.times.created_at + 0.8 * whole).timestamp() * 1000
    await driver.finish(lease)


async def test_looking_early_does_not_lose_start_by(driver: StoreDriver) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1)
    submitted = await driver.submit(start_by=soon)
    (settled,) = await driver.sweep(submitted.run_id, "end")

    assert settled.status == "queued"
    due = await driver.redis.zscore(keys.due("00"), f"{submitted.run_id}/end")
    assert due == int(soon.timestamp() * 1000)


async def test_the_deadline_ends_a_run_that_is_worked_on(driver: StoreDriver, redis: Any) -> None:
    run_id, deliveries = await driver.turn("c1", "c2")
    lease = await driver.claim(deliveries[0], "w7")
    async with driver.hearing("w7") as heard:
        await redis.hset(keys.run(run_id), "deadline", 2)
        (settled,) = await driver.hasten(run_id, "end")

        assert settled.status == "expired"
        assert await driver.results(run_id) == [
            ("c1", "Interrupted: the run ended (deadline). It may or may not have taken effect."),
            ("c2", "Not started: the run ended (deadline)."),
        ]
        assert await aeventually(lambda: heard) == [Interruption(run_id, pausing=False)]
    with pytest.raises(StaleLease):
        await driver.answer(lease)
    assert (await driver.get(run_id)).status is RunStatus.EXPIRED


async def test_what_points_at_nothing_is_forgotten(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    await driver.finish(lease)
    gone = new_run_id("00")
    await redis.zadd(keys.due("00"), {f"{run_id}/1": 1, f"{run_id}/end": 1, f"{gone}/1": 1})
    await redis.zadd(keys.ready("00", "tools"), {f"{run_id}/1/c": 1, f"{gone}/1/c": 1})

    things, _ = await driver.store.due.due()
    things += await driver.store.due.unclaimed("tools", 0, 10)
    assert len(things) == 5
    assert await driver.store.due.sweep(things) == []
    assert (await driver.store.due.due())[0] == []


async def test_depths(driver: StoreDriver, redis: Any) -> None:
    assert await driver.store.due.depths() == {"model": (0, 0.0), "tools": (0, 0.0)}
    await driver.submit()
    await driver.submit()
    await driver.turn("c1", "c2", "c3")
    depths = await driver.store.due.depths()

    assert (depths["model"][0], depths["tools"][0]) == (2, 3)
    assert 0 <= depths["tools"][1] <= depths["model"][1] < 5
