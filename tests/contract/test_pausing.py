"""A paused run begins nothing, keeps its place, and goes on exactly where it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from palaver.errors import StateConflict
from palaver.schemas.models import AgentSpec, Budget, Usage
from palaver.steps.leases import Delivery, Lease, Renewal, Settled, Stray
from palaver.steps.verdicts import RetryAfter
from palaver.store.fleet.fleet import Interruption
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason
from tests.contract.store_driver import (
    INTERNAL,
    PAUSE,
    PAUSE_NOW,
    RATE_LIMITED,
    RESUME,
    TOOL_ERROR,
    StoreDriver,
    approve,
    deny,
    output,
    say,
)  # fmt: skip
from tests.waiting import aeventually

PAUSED = ["run.pausing", "run.paused"]


async def _resume(driver: StoreDriver, run_id: str) -> list[Delivery]:
    return list((await driver.act(run_id, RESUME)).settled.deliveries)


async def _step(driver: StoreDriver, run_id: str, name: str = "1") -> dict[str, Any]:
    return orjson.loads(await driver.redis.hget(keys.steps(run_id), name))  # type: ignore[no-any-return]


async def test_a_run_that_nobody_began(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    acted = await driver.act(submitted.run_id, PAUSE)

    assert (acted.settled.status, acted.settled.deliveries) == ("paused", ())
    assert await driver.try_claim(submitted.deliveries[0]) == Stray("paused")
    assert await driver.kinds(submitted.run_id) == ["run.created", "message.created", *PAUSED]
    (nothing,) = await driver.sweep(submitted.run_id, "1", unclaimed_after=0)
    assert nothing.deliveries == ()

    (delivery,) = await _resume(driver, submitted.run_id)
    assert ((await driver.get(submitted.run_id)).status, delivery.number) == (RunStatus.QUEUED, 2)
    await driver.finish(await driver.claim(delivery))


async def test_again_changes_nothing_and_now_is_stronger(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    async with driver.hearing("w1") as heard:
        for item in (PAUSE, PAUSE, PAUSE_NOW, PAUSE, PAUSE_NOW):
            assert (await driver.act(run_id, item)).settled.status == "running"

        assert [event.data for event in await driver.events(run_id) if event.type == "run.pausing"] == [
            {"now": False, "reason": None}, {"now": True, "reason": None},
        ]  # fmt: skip
        assert await aeventually(lambda: heard) == [Interruption(run_id, pausing=True)]
    await driver.hand_back(lease)
    await driver.act(run_id, PAUSE_NOW)
    assert (await driver.kinds(run_id)).count("run.paused") == 1


async def test_the_reason_of_a_pause_is_in_the_log(driver: StoreDriver) -> None:
    run_id, _ = await driver.begin()
    await driver.act(run_id, PAUSE_NOW.model_copy(update={"reason": 'a "look" first'}))
    (pausing,) = [entry.data for entry in await driver.log(run_id) if entry.type == "run.pausing"]
    assert pausing == {"now": True, "reason": 'a "look" first'}


async def test_a_model_call_under_way_finishes_and_its_calls_wait(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, PAUSE)
    run = await driver.get(run_id)
    assert (run.status, run.pausing) == (RunStatus.RUNNING, True)
    assert await driver.store.steps.renew([lease]) == [Renewal.PROLONGED]

    assert await driver.ask(lease, "c1", "c2") == []
    run = await driver.get(run_id)
    assert (run.status, run.pausing) == (RunStatus.PAUSED, False)
    deliveries = await _resume(driver, run_id)
    assert [each.step for each in deliveries] == ["1/c1", "1/c2"]
    for delivery in deliveries:
        settled = await driver.answer(await driver.claim(delivery))
    assert [each.step for each in settled.deliveries] == ["2"]


@pytest.mark.parametrize("pause", [PAUSE, PAUSE_NOW])
async def test_a_model_that_ends_its_turn_ends_the_run(driver: StoreDriver, pause: Any) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, pause)
    assert (await driver.finish(lease)).status == "completed"
    run = await driver.get(run_id)
    assert (run.pausing, run.output) == (False, "bye")
    assert "run.paused" not in await driver.kinds(run_id)


async def test_now_aborts_a_model_call_and_it_is_made_again(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, PAUSE_NOW)
    assert await driver.store.steps.renew([lease]) == [Renewal.PAUSING]
    assert (await driver.hand_back(lease, usage=Usage(input_tokens=7, model_calls=1))).status == "paused"
    assert (await driver.kinds(run_id))[-2:] == ["message.discarded", "run.paused"]

    (delivery,) = await _resume(driver, run_id)
    again = await driver.claim(delivery)
    assert (again.step, again.attempt, again.log.entries) == ("1", 1, lease.log.entries)
    await driver.finish(again)
    assert (await driver.get(run_id)).usage.input_tokens == 7


async def test_now_lets_tools_finish(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2", "c3")
    leases = [await driver.claim(delivery) for delivery in deliveries[:2]]
    await driver.act(run_id, PAUSE_NOW)
    assert await driver.store.steps.renew(leases[:1]) == [Renewal.PROLONGED]
    assert await driver.try_claim(deliveries[2]) == Stray("parked")

    assert (await driver.answer(leases[0])).status == "running"
    assert (await driver.answer(leases[1])).status == "paused"
    (delivery,) = await _resume(driver, run_id)
    assert delivery.step == "1/c3"


Brings = Callable[[StoreDriver, Lease], Awaitable[Settled]]


async def _lost(driver: StoreDriver, lease: Lease) -> Settled:
    return (await driver.lose(lease))[0]


async def _postponed(driver: StoreDriver, lease: Lease) -> Settled:
    return await driver.postpone(lease)


@pytest.mark.parametrize(("brings", "reason"), [
    (lambda driver, lease: driver.retry(lease), WaitReason.BACKOFF),
    (_postponed, WaitReason.PROVIDER_COOLDOWN),
    (lambda driver, lease: driver.hand_back(lease), None),
    (lambda driver, lease: driver.hand_back(lease, begun=False), None),
    (_lost, None),
], ids=["retry", "postponed", "handed back", "unbegun", "lost"])  # fmt: skip
@pytest.mark.parametrize("pause_first", [True, False])
async def test_whatever_a_model_step_brings_goes_on_after_the_pause(
    driver: StoreDriver, brings: Brings, reason: WaitReason | None, pause_first: bool
) -> None:
    run_id, lease = await driver.begin()
    if pause_first:
        await driver.act(run_id, PAUSE)
        settled = await brings(driver, lease)
    else:
        await brings(driver, lease)
        settled = (await driver.act(run_id, PAUSE)).settled
    assert (settled.status, settled.deliveries) == ("paused", ())
    run = await driver.get(run_id)
    assert (run.status, run.waiting) == (RunStatus.PAUSED, None)
    assert await driver.redis.zrange(keys.due("00"), 0, -1) == [f"{run_id}/end".encode()]
    assert await driver.store.steps.promote([(lease.conversation_id, run_id, "1")]) == [None]

    deliveries = await _resume(driver, run_id)
    run = await driver.get(run_id)
    assert (run.status, run.waiting and run.waiting.reason) == (RunStatus.RUNNING, reason)
    if reason is not None:
        assert run.waiting is not None
        assert (run.waiting.code, run.waiting.attempt) == (
            ("cooldown", None) if reason == "provider_cooldown" else (None, 2)
        )
        (due,) = await driver.hasten(run_id, "1")
        deliveries = list(due.deliveries)
    assert [each.step for each in deliveries] == ["1"]
    await driver.finish(await driver.claim(deliveries[0]))


async def test_a_step_whose_time_comes_in_the_pause_goes_on_at_once_afterwards(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    await driver.retry(lease)
    await driver.act(run_id, PAUSE)
    await redis.hset(keys.steps(run_id), "1", orjson.dumps({**await _step(driver, run_id), "until": 1}))
    (delivery,) = await _resume(driver, run_id)
    assert (await driver.claim(delivery)).attempt == 2


@pytest.mark.parametrize("postponed", [False, True])
async def test_the_pause_is_not_the_steps_time(driver: StoreDriver, redis: Any, postponed: bool) -> None:
    run_id, lease = await driver.begin()
    await driver.retry(lease, delay=60)
    if postponed:
        (due,) = await driver.hasten(run_id, "1")
        await _postponed(driver, await driver.claim(due.deliveries[0]))
    await driver.act(run_id, PAUSE)
    step = await _step(driver, run_id)
    hour = 3_600_000
    earlier = {name: step[name] - hour for name in ("first", "until", "parked", "postponed") if name in step}
    await redis.hset(keys.steps(run_id), "1", orjson.dumps({**step, **earlier}))

    (delivery,) = await _resume(driver, run_id)
    assert 0 <= (await driver.claim(delivery)).elapsed < 5


async def test_a_poison_step_is_one_in_a_pause_too(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    for _ in range(2):
        (lost,) = await driver.lose(lease)
        lease = await driver.claim(lost.deliveries[0])
    await driver.act(run_id, PAUSE)
    (lost,) = await driver.lose(lease)
    assert lost.status == "failed"


@pytest.mark.parametrize("brings", ["answer", "retry", "give up", "handed back", "lost", "poison"])
async def test_what_a_tool_brings_while_the_run_is_to_pause(driver: StoreDriver, brings: str) -> None:
    run_id, (delivery,) = await driver.turn("c1")
    lease = await driver.claim(delivery)
    await driver.act(run_id, PAUSE)
    match brings:
        case "answer":
            settled = await driver.answer(lease)
        case "retry":
            settled = await driver.retry(lease, failure=TOOL_ERROR)
        case "give up":
            settled = await driver.give_up(lease, TOOL_ERROR)
        case "handed back":
            settled = await driver.hand_back(lease)
        case "poison":
            settled = await driver.give_up(lease, INTERNAL)
        case _:
            settled = await _lost(driver, lease)
    if brings == "poison":
        assert settled.status == "failed"
        return
    assert (settled.status, settled.deliveries) == ("paused", ())

    deliveries = await _resume(driver, run_id)
    if brings == "retry":
        (due,) = await driver.hasten(run_id, "1/c1")
        deliveries = list(due.deliveries)
        assert [each.step for each in deliveries] == ["1/c1"]
    else:
        assert [each.step for each in deliveries] == ["2"]
    await (driver.answer if brings == "retry" else driver.finish)(await driver.claim(deliveries[0]))


async def test_a_run_behind_another_keeps_its_place(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    conversation = lease.conversation_id
    second, third = [await driver.submit(name, conversation_id=conversation) for name in ("second", "third")]
    assert (await driver.act(second.run_id, PAUSE)).settled.status == "paused"
    waiting = (await driver.get(second.run_id)).waiting
    assert waiting is not None
    assert waiting.reason is WaitReason.CONVERSATION_BUSY

    assert (await driver.finish(lease)).next_run == second.run_id
    (entered,) = await driver.sweep(second.run_id, "start")
    assert (entered.status, entered.deliveries) == ("paused", ())
    assert (await driver.get(second.run_id)).waiting is None
    assert (await driver.store.runs.conversation(conversation)).active_run == second.run_id
    (delivery,) = await _resume(driver, second.run_id)
    assert (await driver.get(second.run_id)).status is RunStatus.QUEUED
    lease = await driver.claim(delivery)
    assert (driver.said(lease))[-1] == "second"
    assert (await driver.finish(lease)).next_run == third.run_id


async def test_a_run_behind_another_that_is_resumed_before_its_turn(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    second = await driver.submit(conversation_id=lease.conversation_id)
    await driver.act(second.run_id, PAUSE)
    assert await _resume(driver, second.run_id) == []
    assert (await driver.get(second.run_id)).status is RunStatus.QUEUED
    assert (await driver.finish(lease)).next_run == second.run_id
    (entered,) = await driver.sweep(second.run_id, "start")
    assert [each.step for each in entered.deliveries] == ["1"]


async def test_a_run_that_is_next_and_not_yet_woken(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    second = await driver.submit(conversation_id=lease.conversation_id)
    await driver.finish(lease)
    assert (await driver.act(second.run_id, PAUSE)).settled.status == "paused"
    assert await _resume(driver, second.run_id) == []
    (entered,) = await driver.sweep(second.run_id, "start")
    assert [each.step for each in entered.deliveries] == ["1"]


@pytest.mark.parametrize("resumed", ["before", "after"])
async def test_a_scheduled_run(driver: StoreDriver, resumed: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    run_id = (await driver.submit(start_after=later)).run_id
    await driver.act(run_id, PAUSE)
    waiting = (await driver.get(run_id)).waiting
    assert waiting is not None
    assert waiting.reason is WaitReason.SCHEDULED
    if resumed == "before":
        assert await _resume(driver, run_id) == []
        (started,) = await driver.hasten(run_id, "start")
        deliveries = list(started.deliveries)
    else:
        (started,) = await driver.hasten(run_id, "start")
        assert (started.status, started.deliveries) == ("paused", ())
        deliveries = await _resume(driver, run_id)
    assert [each.step for each in deliveries] == ["1"]
    assert (await driver.get(run_id)).status is RunStatus.QUEUED


async def test_start_by_holds_for_a_paused_run_too(driver: StoreDriver, redis: Any) -> None:
    run_id = (await driver.submit(start_by=datetime.now(UTC) + timedelta(hours=1))).run_id
    await driver.act(run_id, PAUSE)
    await redis.hset(keys.run(run_id), "start_by", 2)
    await driver.hasten(run_id, "end")
    run = await driver.get(run_id)
    assert (run.status, run.stop_reason) == (RunStatus.EXPIRED, StopReason.DEADLINE)


async def test_start_by_does_not_hold_for_a_run_that_was_begun(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin(start_by=datetime.now(UTC) + timedelta(hours=1))
    await driver.act(run_id, PAUSE)
    await driver.retry(lease)
    await redis.hset(keys.run(run_id), "start_by", 2)
    await driver.hasten(run_id, "end")
    assert (await driver.get(run_id)).status is RunStatus.PAUSED


async def test_a_run_that_waits_for_actions(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", "o1", approval=["p1"], client=["o1"])
    assert (await driver.act(run_id, PAUSE)).settled.status == "paused"
    run = await driver.get(run_id)
    assert ([action.call_id for action in run.pending_actions], run.waiting) == (["p1", "o1"], None)

    assert await _resume(driver, run_id) == []
    run = await driver.get(run_id)
    assert (run.status, run.waiting and run.waiting.reason) == (RunStatus.REQUIRES_ACTION, WaitReason.APPROVAL)
    assert (await driver.kinds(run_id))[-5:] == ["run.requires_action", *PAUSED, "run.resumed", "run.requires_action"]


async def test_decisions_and_outputs_come_in_meanwhile(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", "o1", "p2", approval=["p1", "p2"], client=["o1"])
    await driver.act(run_id, PAUSE)
    approved, denied = await driver.action(run_id, "p1"), await driver.action(run_id, "p2")
    acted = await driver.act(run_id, approve(approved.id), deny(denied.id), output("o1"))
    assert (acted.settled.status, acted.settled.deliveries) == ("paused", ())
    assert [call for call, _ in await driver.results(run_id)] == ["p2", "o1"]

    (delivery,) = await _resume(driver, run_id)
    assert delivery.step == "1/p1"
    assert (await driver.get(run_id)).waiting is None
    assert [each.step for each in (await driver.answer(await driver.claim(delivery))).deliveries] == ["2"]


async def test_the_last_result_comes_in_meanwhile(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("o1", client=["o1"])
    await driver.act(run_id, PAUSE)
    acted = await driver.act(run_id, output("o1"), say("look again"))
    assert (acted.settled.status, acted.settled.deliveries) == ("paused", ())
    (delivery,) = await _resume(driver, run_id)
    assert (driver.said(await driver.claim(delivery)))[-2:] == ["seen", "look again"]


async def test_calls_that_would_wait_are_asked_for_while_pausing(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, PAUSE)
    await driver.ask(lease, "p1", approval=["p1"])
    run = await driver.get(run_id)
    assert (run.status, len(run.pending_actions)) == (RunStatus.PAUSED, 1)
    assert "run.requires_action" not in await driver.kinds(run_id)
    assert await _resume(driver, run_id) == []
    assert (await driver.get(run_id)).status is RunStatus.REQUIRES_ACTION


async def test_a_decision_while_a_tool_finishes_before_the_pause(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1", "p1", approval=["p1"])
    lease = await driver.claim(delivery)
    await driver.act(run_id, PAUSE)
    acted = await driver.act(run_id, approve())
    assert (acted.settled.status, acted.settled.deliveries) == ("running", ())
    assert (await driver.answer(lease)).status == "paused"
    assert [each.step for each in await _resume(driver, run_id)] == ["1/p1"]


async def test_pause_and_decision_in_one_request(driver: StoreDriver) -> None:
    for items in ((PAUSE, approve()), (approve(), PAUSE)):
        run_id, _ = await driver.turn("p1", approval=["p1"])
        assert (await driver.act(run_id, *items)).settled.status == "paused"
        assert [each.step for each in await _resume(driver, run_id)] == ["1/p1"]


async def test_resume_before_the_pause_holds(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2")
    lease = await driver.claim(deliveries[0])
    await driver.act(run_id, PAUSE)
    (delivery,) = await _resume(driver, run_id)
    run = await driver.get(run_id)
    assert (run.status, run.pausing, delivery.step) == (RunStatus.RUNNING, False, "1/c2")
    assert (await driver.answer(lease)).status == "running"
    assert (await driver.kinds(run_id)).count("run.paused") == 0


async def test_only_what_is_paused_can_be_resumed(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    with pytest.raises(StateConflict) as refused:
        await driver.act(run_id, RESUME)
    assert refused.value.code == "not_paused"
    await driver.act(run_id, PAUSE)
    await driver.act(run_id, RESUME, RESUME)
    assert (await driver.kinds(run_id)).count("run.resumed") == 1
    await driver.finish(lease)
    for item in (PAUSE, RESUME):
        with pytest.raises(StateConflict) as refused:
            await driver.act(run_id, item)
        assert refused.value.code == "run_ended"


async def test_an_answer_that_got_lost(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    with driver.answers_get_lost():
        await driver.act(submitted.run_id, PAUSE)
        (delivery,) = await _resume(driver, submitted.run_id)
    assert (await driver.kinds(submitted.run_id))[2:] == [*PAUSED, "run.resumed"]
    await driver.claim(delivery)


@pytest.mark.parametrize("mode", ["graceful", "now", "rollback"])
async def test_cancel_while_paused(driver: StoreDriver, mode: Any) -> None:
    run_id, deliveries = await driver.turn("c1", "p1", approval=["p1"])
    await driver.act(run_id, PAUSE)
    assert (await driver.store.runs.cancel(run_id, mode=mode)).status == "cancelled"
    assert [call for call, _ in await driver.results(run_id)] == ["c1", "p1"]
    assert await driver.try_claim(deliveries[0]) == Stray("cancelled")


@pytest.mark.parametrize("pause", [PAUSE, PAUSE_NOW])
async def test_cancel_while_pausing(driver: StoreDriver, pause: Any) -> None:
    run_id, lease = await driver.begin()
    await driver.act(run_id, pause)
    assert (await driver.store.runs.cancel(run_id, mode="graceful")).status == "cancelling"
    assert not (await driver.get(run_id)).pausing
    assert await driver.store.steps.renew([lease]) == [Renewal.PROLONGED]
    assert (await driver.hand_back(lease)).status == "cancelled"
    assert "run.paused" not in await driver.kinds(run_id)


async def test_deadline_and_budget_hold_in_a_pause(driver: StoreDriver, redis: Any) -> None:
    for field, status in (("deadline", "expired"), ("started_at", "incomplete")):
        run_id, lease = await driver.begin(budget=Budget(seconds=3600))
        await driver.act(run_id, PAUSE)
        await driver.retry(lease)
        await redis.hset(keys.run(run_id), field, 2)
        await driver.hasten(run_id, "end")
        assert (await driver.get(run_id)).status == status


async def test_limits_hold_when_it_goes_on(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(agent=AgentSpec(model="fake/echo", max_steps=1))
    second = await driver.submit(conversation_id=lease.conversation_id)
    (delivery,) = await driver.ask(lease, "c1")
    tool = await driver.claim(delivery)
    await driver.act(run_id, PAUSE)
    assert (await driver.answer(tool)).status == "paused"
    acted = await driver.act(run_id, RESUME)
    assert (acted.settled.status, acted.settled.next_run) == ("incomplete", second.run_id)


async def test_a_fallback_in_a_pause(driver: StoreDriver) -> None:
    agent = AgentSpec(model="fake/echo", fallbacks=("fake/other",))
    run_id, lease = await driver.begin(agent=agent)
    await driver.act(run_id, PAUSE)
    await driver.store.steps.settle(lease, RetryAfter(0, RATE_LIMITED, fallback=True))
    (delivery,) = await _resume(driver, run_id)
    again = await driver.claim(delivery)
    assert (again.agent.model, again.attempt) == ("fake/other", 1)
