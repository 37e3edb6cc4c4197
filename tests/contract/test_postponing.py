"""Steps that wait because there is no room for them: no attempt, no time, no slot."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from palaver.leases import Delivery, Stray
from palaver.lifecycle import RunStatus
from palaver.store import keys
from tests.contract.desk import Desk


async def test_a_postponed_run_says_why_and_until_when(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    settled = await desk.postpone(lease)
    assert (settled.status, settled.deliveries) == ("running", ())
    run = await desk.get(run_id)
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.code) == ("provider_cooldown", "cooldown")
    due = await desk.redis.zscore(keys.due("00"), f"{run_id}/1")
    assert run.waiting.until is not None
    assert run.waiting.until.timestamp() * 1000 == pytest.approx(due, abs=1)
    event = (await desk.events(run_id))[-1]
    assert event.type == "run.waiting"
    assert event.data == {"step": "1", "reason": "provider_cooldown", "code": "cooldown", "delay": 60}
    # The lease is used up: a repeat is answered, and writes nothing.
    assert (await desk.finish(lease)).status == "running"
    assert (await desk.get(run_id)).waiting == run.waiting
    assert (await desk.events(run_id))[-1] == event


async def test_postponing_costs_no_attempt_and_comes_first_afterwards(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    for _ in range(5):
        await desk.postpone(lease)
        assert await desk.attend(run_id, "1") != []
        assert isinstance(await desk.try_claim(Delivery("model", run_id, lease.conversation_id, "1", 1)), Stray)
        (settled,) = await desk.hasten(run_id, "1")
        (delivery,) = settled.deliveries
        assert delivery.queue == "model.recovered"
        lease = await desk.claim(delivery)
    assert (lease.attempt, lease.try_number) == (1, 1)
    run = await desk.get(run_id)
    assert (run.waiting, run.status) == (None, RunStatus.RUNNING)


async def test_waiting_for_room_is_not_the_steps_time(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.postpone(lease, 3600)
    step = await _step(desk, run_id)
    assert "first" not in step
    (settled,) = await desk.hasten(run_id, "1")
    lease = await desk.claim(settled.deliveries[0])
    await desk.retry(lease, delay=60)
    (settled,) = await desk.hasten(run_id, "1")
    lease = await desk.claim(settled.deliveries[0])
    before = (await _step(desk, run_id))["first"]
    await desk.postpone(lease, 3600)
    assert (await _step(desk, run_id))["first"] == before + 3_600_000
    recalled = await desk.store.steps.recall(run_id, lease.conversation_id, "1")
    assert recalled is not None
    lease = await desk.claim(recalled.deliveries[0])
    assert lease.attempt == 2
    assert lease.elapsed == pytest.approx(0, abs=0.5)


async def _step(desk: Desk, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(await desk.redis.hget(keys.steps(run_id), "1"))
    return found


async def test_only_what_was_postponed_is_recalled(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    recall = desk.store.steps.recall
    assert await recall(run_id, lease.conversation_id, "1") is None
    await desk.postpone(lease)
    settled = await recall(run_id, lease.conversation_id, "1")
    assert settled is not None
    assert [each.queue for each in settled.deliveries] == ["model.recovered"]
    assert await recall(run_id, lease.conversation_id, "1") is None
    await desk.retry(await desk.claim(settled.deliveries[0]))
    # It backs off because an attempt of it failed: room at the provider changes nothing about that.
    assert await recall(run_id, lease.conversation_id, "1") is None
    assert await recall("run_00" + "0" * 26, lease.conversation_id, "1") is None


async def test_a_cancel_does_not_wait_for_room(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.postpone(lease)
    settled = await desk.store.runs.cancel(run_id)
    assert settled.status == "cancelled"
    assert await desk.store.steps.recall(run_id, lease.conversation_id, "1") is None


async def test_a_cancel_wins_over_postponing(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    second = await desk.submit(conversation_id=lease.conversation_id)
    await desk.store.runs.cancel(run_id)
    settled = await desk.postpone(lease)
    assert (settled.status, settled.next_run) == ("cancelled", second.run_id)
