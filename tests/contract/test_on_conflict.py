"""What a submit does with the runs that its conversation has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.errors import StateConflict
from palaver.steps.leases import Stray
from palaver.store.fleet.fleet import Interruption
from palaver.vocabulary.lifecycle import RunStatus
from tests.contract.store_driver import PAUSE, StoreDriver, approve
from tests.waiting import aeventually

TAKES_OVER = ["interrupt", "rollback"]


async def test_enqueue_is_refused_while_somebody_must_act(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1", "p1", approval=["p1"])
    conversation = delivery.conversation_id
    behind = await driver.submit("behind", conversation_id=conversation)
    await driver.answer(await driver.claim(delivery))

    with pytest.raises(StateConflict) as refused:
        await driver.submit("later", conversation_id=conversation)
    assert (refused.value.code, refused.value.run_id) == ("pending_action", run_id)
    later = await driver.submit(conversation_id=conversation, start_after=datetime.now(UTC) + timedelta(hours=1))
    assert (await driver.get(later.run_id)).status is RunStatus.QUEUED
    await driver.act(run_id, approve())
    third = await driver.submit("later", conversation_id=conversation)
    assert (await driver.store.runs.conversation(conversation)).queued_runs == (behind.run_id, third.run_id)


async def test_enqueue_behind_a_paused_run(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1")
    await driver.act(run_id, PAUSE)
    second = await driver.submit(conversation_id=delivery.conversation_id)
    assert (await driver.store.runs.conversation(delivery.conversation_id)).queued_runs == (second.run_id,)


async def test_what_is_refused_leaves_nothing_behind(driver: StoreDriver, redis: Any) -> None:
    run_id, _ = await driver.turn("p1", approval=["p1"])
    conversation = (await driver.get(run_id)).conversation_id
    before = await driver.everything()
    for how in ("enqueue", "reject"):
        for key in (None, "k"):
            with pytest.raises(StateConflict):
                await driver.submit(conversation_id=conversation, on_conflict=how, idempotency_key=key)
    assert await driver.everything() == before


@pytest.mark.parametrize("how", TAKES_OVER)
async def test_a_run_that_nobody_works_on_makes_way_at_once(driver: StoreDriver, how: Any) -> None:
    run_id, (delivery,) = await driver.turn("c1")
    second = await driver.submit("instead", conversation_id=delivery.conversation_id, on_conflict=how)

    assert [each.step for each in second.deliveries] == ["1"]
    old = await driver.get(run_id)
    assert (old.status, old.withdrawn) == (RunStatus.CANCELLED, how == "rollback")
    assert old.cancel is not None
    assert (old.cancel.mode, old.cancel.reason) == (
        "rollback" if how == "rollback" else "now", f"interrupted by {second.run_id}",
    )  # fmt: skip
    assert await driver.try_claim(delivery) == Stray("cancelled")
    lease = await driver.claim(second.deliveries[0])
    assert len(driver.said(lease)) == (1 if how == "rollback" else 4)
    conversation = await driver.store.runs.conversation(delivery.conversation_id)
    assert (conversation.active_run, conversation.queued_runs) == (second.run_id, ())


@pytest.mark.parametrize("how", TAKES_OVER)
async def test_a_run_that_is_worked_on_lets_go_first(driver: StoreDriver, how: Any) -> None:
    run_id, lease = await driver.begin()
    conversation = lease.conversation_id
    async with driver.hearing("w1") as heard:
        queued = [await driver.submit(conversation_id=conversation) for _ in range(3)]
        second = await driver.submit("instead", conversation_id=conversation, on_conflict=how)

        assert second.deliveries == ()
        assert (await driver.get(run_id)).status is RunStatus.CANCELLING
        for each in queued:
            run = await driver.get(each.run_id)
            assert (run.status, run.withdrawn, run.times.started_at) == (RunStatus.CANCELLED, False, None)
        assert await aeventually(lambda: heard) == [Interruption(run_id, pausing=False)]
    assert (await driver.store.runs.conversation(conversation)).queued_runs == (second.run_id,)
    settled = await driver.finish(lease)
    assert (settled.status, settled.next_run) == ("cancelled", second.run_id)
    (entered,) = await driver.sweep(second.run_id, "start")
    said = driver.said(await driver.claim(entered.deliveries[0]))
    assert said == (["instead"] if how == "rollback" else ["hello", "bye", "instead"])


@pytest.mark.parametrize("how", TAKES_OVER)
async def test_none_of_those_behind_gets_the_turn_meanwhile(driver: StoreDriver, how: Any, redis: Any) -> None:
    _, (delivery,) = await driver.turn("c1")
    conversation = delivery.conversation_id
    behind = [(await driver.submit(conversation_id=conversation)).run_id for _ in range(3)]
    last = await driver.submit("instead", conversation_id=conversation, on_conflict=how)

    ends = [entry.run_id for entry in await driver.log(last.run_id) if entry.type == "run.finished"]
    assert ends == [*behind[::-1], delivery.run_id]
    assert not [member for member in await redis.zrange("{p00}:due", 0, -1) if member.endswith(b"/start")]


@pytest.mark.parametrize("how", TAKES_OVER)
async def test_the_last_one_to_interrupt_is_next(driver: StoreDriver, how: Any) -> None:
    _, lease = await driver.begin()
    runs = [await driver.submit(conversation_id=lease.conversation_id, on_conflict=how) for _ in range(4)]
    assert [(await driver.get(run.run_id)).status for run in runs] == [*["cancelled"] * 3, "queued"]
    assert (await driver.finish(lease)).next_run == runs[-1].run_id


async def test_a_graceful_cancel_is_overtaken(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id, mode="graceful", reason="a")
    await driver.submit(conversation_id=lease.conversation_id, on_conflict="rollback")
    await driver.finish(lease)
    run = await driver.get(run_id)
    assert run.cancel is not None
    assert (run.cancel.mode, run.withdrawn) == ("rollback", True)


@pytest.mark.parametrize("how", TAKES_OVER)
@pytest.mark.parametrize("state", ["paused", "approval", "client", "queued", "next", "backing off"])
async def test_whatever_the_active_run_waits_for(driver: StoreDriver, how: Any, state: str) -> None:
    match state:
        case "approval":
            run_id, _ = await driver.turn("c1", approval=["c1"])
        case "client":
            run_id, _ = await driver.turn("c1", client=["c1"])
        case "backing off":
            run_id, lease = await driver.begin()
            await driver.retry(lease)
        case "next":
            _, lease = await driver.begin()
            run_id = (await driver.submit(conversation_id=lease.conversation_id)).run_id
            await driver.finish(lease)
        case _:
            run_id = (await driver.submit()).run_id
            if state == "paused":
                await driver.act(run_id, PAUSE)
    old = await driver.get(run_id)
    second = await driver.submit("instead", conversation_id=old.conversation_id, on_conflict=how)
    assert [each.step for each in second.deliveries] == ["1"]
    old = await driver.get(run_id)
    assert (old.status, old.pending_actions) == (RunStatus.CANCELLED, ())
    assert old.withdrawn == (how == "rollback" and state != "next")
    said = driver.said(await driver.claim(second.deliveries[0]))
    assert said[-1] == "instead"
    assert len(said) == {("rollback", "next"): 3}.get((how, state), len(said))


@pytest.mark.parametrize("how", TAKES_OVER)
async def test_a_scheduled_run_is_left_alone(driver: StoreDriver, how: Any) -> None:
    _, lease = await driver.begin()
    later = datetime.now(UTC) + timedelta(hours=1)
    scheduled = await driver.submit(conversation_id=lease.conversation_id, start_after=later)
    await driver.submit(conversation_id=lease.conversation_id, on_conflict=how)
    assert (await driver.get(scheduled.run_id)).status is RunStatus.QUEUED
    await driver.finish(lease)


@pytest.mark.parametrize("how", TAKES_OVER)
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("held", [False, True])
async def test_an_answer_that_got_lost_interrupts_once(
    driver: StoreDriver, how: Any, key: str | None, held: bool
) -> None:
    run_id, (delivery,) = await driver.turn("c1")
    if held:
        lease = await driver.claim(delivery)
    with driver.answers_get_lost():
        second = await driver.submit(conversation_id=delivery.conversation_id, on_conflict=how, idempotency_key=key)

    assert (second.replayed, len(second.deliveries)) == (False, 0 if held else 1)
    assert (await driver.get(second.run_id)).status is RunStatus.QUEUED
    assert (await driver.kinds(run_id)).count("run.cancelling") == 1
    if held:
        assert (await driver.answer(lease)).next_run == second.run_id
        kinds = await driver.kinds(run_id)
        assert (await driver.hand_back(lease)).status == "cancelled"
        assert await driver.kinds(run_id) == kinds, "written under a lease that was settled"


@pytest.mark.parametrize("how", TAKES_OVER)
async def test_the_same_key_interrupts_once(driver: StoreDriver, how: Any) -> None:
    _, lease = await driver.begin()
    wanted = {"conversation_id": lease.conversation_id, "on_conflict": how, "idempotency_key": "k"}
    first = await driver.submit("instead", **wanted)
    await driver.finish(lease)
    (entered,) = await driver.sweep(first.run_id, "start")
    lease = await driver.claim(entered.deliveries[0])
    again = await driver.submit("instead", **wanted)
    assert (again.run_id, again.replayed, again.steered) == (first.run_id, True, False)
    assert (await driver.finish(lease)).status == "completed"


@pytest.mark.parametrize("how", ["reject", "interrupt", "rollback", "steer"])
async def test_a_conversation_that_is_free_takes_any(driver: StoreDriver, how: Any) -> None:
    run_id, lease = await driver.begin()
    await driver.finish(lease)
    second = await driver.submit("again", conversation_id=lease.conversation_id, on_conflict=how)
    assert (len(second.deliveries), second.steered) == (1, False)
    assert (await driver.get(run_id)).status is RunStatus.COMPLETED
    fresh = await driver.submit("new", on_conflict=how)
    assert (len(fresh.deliveries), fresh.steered) == (1, False)


async def test_the_new_run_may_end_and_leave_the_conversation_to_expire(driver: StoreDriver, redis: Any) -> None:
    _, (delivery,) = await driver.turn("c1")
    conversation = f"{{p00}}:conv:{delivery.conversation_id}"
    second = await driver.submit(conversation_id=delivery.conversation_id, on_conflict="interrupt")
    assert await redis.ttl(conversation) == -1
    await driver.finish(await driver.claim(second.deliveries[0]))
    assert await redis.ttl(conversation) > 0
