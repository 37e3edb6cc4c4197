"""A paused run begins nothing, keeps its place, and goes on exactly where it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from palaver.errors import StateConflict
from palaver.leases import Delivery, Lease, Renewal, Settled, Stray
from palaver.lifecycle import RunStatus, StopReason, WaitReason
from palaver.models import AgentSpec, Budget, Usage
from palaver.store import keys
from palaver.store.fleet import Interruption
from palaver.testing import aeventually
from palaver.verdicts import RetryAfter
from tests.contract.desk import (
    INTERNAL,
    PAUSE,
    PAUSE_NOW,
    RATE_LIMITED,
    RESUME,
    TOOL_ERROR,
    Desk,
    approve,
    deny,
    output,
    say,
)  # fmt: skip

PAUSED = ["run.pausing", "run.paused"]


async def _resume(desk: Desk, run_id: str) -> list[Delivery]:
    return list((await desk.act(run_id, RESUME)).settled.deliveries)


async def _step(desk: Desk, run_id: str, name: str = "1") -> dict[str, Any]:
    return orjson.loads(await desk.redis.hget(keys.steps(run_id), name))  # type: ignore[no-any-return]


async def test_a_run_that_nobody_began(desk: Desk) -> None:
    submitted = await desk.submit()
    acted = await desk.act(submitted.run_id, PAUSE)

    assert (acted.settled.status, acted.settled.deliveries) == ("paused", ())
    assert await desk.try_claim(submitted.deliveries[0]) == Stray("paused")
    assert await desk.kinds(submitted.run_id) == ["run.created", "message.created", *PAUSED]
    (nothing,) = await desk.attend(submitted.run_id, "1", unclaimed_after=0)
    assert nothing.deliveries == ()

    (delivery,) = await _resume(desk, submitted.run_id)
    assert ((await desk.get(submitted.run_id)).status, delivery.number) == (RunStatus.QUEUED, 2)
    await desk.finish(await desk.claim(delivery))


async def test_again_changes_nothing_and_now_is_stronger(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    listener = desk.store.fleet.cancels("w1")
    assert await listener.pending() == []
    for item in (PAUSE, PAUSE, PAUSE_NOW, PAUSE, PAUSE_NOW):
        assert (await desk.act(run_id, item)).settled.status == "running"

    assert [event.data for event in await desk.events(run_id) if event.type == "run.pausing"] == [
        {"now": False}, {"now": True},
    ]  # fmt: skip
    assert await aeventually(listener.pending) == [Interruption(run_id, pausing=True)]
    await listener.close()
    await desk.hand_back(lease)
    await desk.act(run_id, PAUSE_NOW)
    assert (await desk.kinds(run_id)).count("run.paused") == 1


async def test_a_model_call_under_way_finishes_and_its_calls_wait(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, PAUSE)
    run = await desk.get(run_id)
    assert (run.status, run.pausing) == (RunStatus.RUNNING, True)
    assert await desk.store.steps.renew([lease]) == [Renewal.PROLONGED]

    assert await desk.ask(lease, "c1", "c2") == []
    run = await desk.get(run_id)
    assert (run.status, run.pausing) == (RunStatus.PAUSED, False)
    deliveries = await _resume(desk, run_id)
    assert [each.step for each in deliveries] == ["1/c1", "1/c2"]
    for delivery in deliveries:
        settled = await desk.answer(await desk.claim(delivery))
    assert [each.step for each in settled.deliveries] == ["2"]


@pytest.mark.parametrize("pause", [PAUSE, PAUSE_NOW])
async def test_a_model_that_ends_its_turn_ends_the_run(desk: Desk, pause: Any) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, pause)
    assert (await desk.finish(lease)).status == "completed"
    run = await desk.get(run_id)
    assert (run.pausing, run.output) == (False, "bye")
    assert "run.paused" not in await desk.kinds(run_id)


async def test_now_aborts_a_model_call_and_it_is_made_again(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, PAUSE_NOW)
    assert await desk.store.steps.renew([lease]) == [Renewal.PAUSING]
    assert (await desk.hand_back(lease, usage=Usage(input_tokens=7))).status == "paused"
    assert (await desk.kinds(run_id))[-2:] == ["message.discarded", "run.paused"]

    (delivery,) = await _resume(desk, run_id)
    again = await desk.claim(delivery)
    assert (again.step, again.attempt, again.entries) == ("1", 1, lease.entries)
    await desk.finish(again)
    assert (await desk.get(run_id)).usage.input_tokens == 7


async def test_now_lets_tools_finish(desk: Desk) -> None:
    run_id, deliveries = await desk.turn("c1", "c2", "c3")
    leases = [await desk.claim(delivery) for delivery in deliveries[:2]]
    await desk.act(run_id, PAUSE_NOW)
    assert await desk.store.steps.renew(leases[:1]) == [Renewal.PROLONGED]
    assert await desk.try_claim(deliveries[2]) == Stray("parked")

    assert (await desk.answer(leases[0])).status == "running"
    assert (await desk.answer(leases[1])).status == "paused"
    (delivery,) = await _resume(desk, run_id)
    assert delivery.step == "1/c3"


Brings = Callable[[Desk, Lease], Awaitable[Settled]]


async def _lost(desk: Desk, lease: Lease) -> Settled:
    return (await desk.lose(lease))[0]


async def _postponed(desk: Desk, lease: Lease) -> Settled:
    return await desk.postpone(lease)


@pytest.mark.parametrize(("brings", "reason"), [
    (lambda desk, lease: desk.retry(lease), WaitReason.BACKOFF),
    (_postponed, WaitReason.PROVIDER_COOLDOWN),
    (lambda desk, lease: desk.hand_back(lease), None),
    (lambda desk, lease: desk.hand_back(lease, begun=False), None),
    (_lost, None),
], ids=["retry", "postponed", "handed back", "unbegun", "lost"])  # fmt: skip
@pytest.mark.parametrize("pause_first", [True, False])
async def test_whatever_a_model_step_brings_goes_on_after_the_pause(
    desk: Desk, brings: Brings, reason: WaitReason | None, pause_first: bool
) -> None:
    run_id, lease = await desk.begin()
    if pause_first:
        await desk.act(run_id, PAUSE)
        settled = await brings(desk, lease)
    else:
        await brings(desk, lease)
        settled = (await desk.act(run_id, PAUSE)).settled
    assert (settled.status, settled.deliveries) == ("paused", ())
    run = await desk.get(run_id)
    assert (run.status, run.waiting) == (RunStatus.PAUSED, None)
    assert await desk.redis.zrange(keys.due("00"), 0, -1) == [f"{run_id}/end".encode()]
    assert await desk.store.steps.recall(run_id, lease.conversation_id, "1") is None

    deliveries = await _resume(desk, run_id)
    run = await desk.get(run_id)
    assert (run.status, run.waiting and run.waiting.reason) == (RunStatus.RUNNING, reason)
    if reason is not None:
        assert run.waiting is not None
        assert (run.waiting.code, run.waiting.attempt) == (
            ("cooldown", None) if reason == "provider_cooldown" else (None, 2)
        )
        (due,) = await desk.hasten(run_id, "1")
        deliveries = list(due.deliveries)
    assert [each.step for each in deliveries] == ["1"]
    await desk.finish(await desk.claim(deliveries[0]))


async def test_a_step_whose_time_comes_in_the_pause_goes_on_at_once_afterwards(desk: Desk, redis: Any) -> None:
    run_id, lease = await desk.begin()
    await desk.retry(lease)
    await desk.act(run_id, PAUSE)
    await redis.hset(keys.steps(run_id), "1", orjson.dumps({**await _step(desk, run_id), "until": 1}))
    (delivery,) = await _resume(desk, run_id)
    assert (await desk.claim(delivery)).attempt == 2


@pytest.mark.parametrize("postponed", [False, True])
async def test_the_pause_is_not_the_steps_time(desk: Desk, redis: Any, postponed: bool) -> None:
    run_id, lease = await desk.begin()
    await desk.retry(lease, delay=60)
    if postponed:
        (due,) = await desk.hasten(run_id, "1")
        await _postponed(desk, await desk.claim(due.deliveries[0]))
    await desk.act(run_id, PAUSE)
    step = await _step(desk, run_id)
    hour = 3_600_000
    earlier = {name: step[name] - hour for name in ("first", "until", "parked", "postponed") if name in step}
    await redis.hset(keys.steps(run_id), "1", orjson.dumps({**step, **earlier}))

    (delivery,) = await _resume(desk, run_id)
    assert 0 <= (await desk.claim(delivery)).elapsed < 5


async def test_a_poison_step_is_one_in_a_pause_too(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    for _ in range(2):
        (lost,) = await desk.lose(lease)
        lease = await desk.claim(lost.deliveries[0])
    await desk.act(run_id, PAUSE)
    (lost,) = await desk.lose(lease)
    assert lost.status == "failed"


@pytest.mark.parametrize("brings", ["answer", "retry", "give up", "handed back", "lost", "poison"])
async def test_what_a_tool_brings_while_the_run_is_to_pause(desk: Desk, brings: str) -> None:
    run_id, (delivery,) = await desk.turn("c1")
    lease = await desk.claim(delivery)
    await desk.act(run_id, PAUSE)
    match brings:
        case "answer":
            settled = await desk.answer(lease)
        case "retry":
            settled = await desk.retry(lease, failure=TOOL_ERROR)
        case "give up":
            settled = await desk.give_up(lease, TOOL_ERROR)
        case "handed back":
            settled = await desk.hand_back(lease)
        case "poison":
            settled = await desk.give_up(lease, INTERNAL)
        case _:
            settled = await _lost(desk, lease)
    if brings == "poison":
        assert settled.status == "failed"
        return
    assert (settled.status, settled.deliveries) == ("paused", ())

    deliveries = await _resume(desk, run_id)
    if brings == "retry":
        (due,) = await desk.hasten(run_id, "1/c1")
        deliveries = list(due.deliveries)
        assert [each.step for each in deliveries] == ["1/c1"]
    else:
        assert [each.step for each in deliveries] == ["2"]
    await (desk.answer if brings == "retry" else desk.finish)(await desk.claim(deliveries[0]))


async def test_a_run_behind_another_keeps_its_place(desk: Desk) -> None:
    _, lease = await desk.begin()
    conversation = lease.conversation_id
    second, third = [await desk.submit(name, conversation_id=conversation) for name in ("second", "third")]
    assert (await desk.act(second.run_id, PAUSE)).settled.status == "paused"
    waiting = (await desk.get(second.run_id)).waiting
    assert waiting is not None
    assert waiting.reason is WaitReason.CONVERSATION_BUSY

    assert (await desk.finish(lease)).next_run == second.run_id
    (entered,) = await desk.attend(second.run_id, "start")
    assert (entered.status, entered.deliveries) == ("paused", ())
    assert (await desk.get(second.run_id)).waiting is None
    assert (await desk.store.runs.conversation(conversation)).active_run == second.run_id
    (delivery,) = await _resume(desk, second.run_id)
    assert (await desk.get(second.run_id)).status is RunStatus.QUEUED
    lease = await desk.claim(delivery)
    assert (desk.said(lease))[-1] == "second"
    assert (await desk.finish(lease)).next_run == third.run_id


async def test_a_run_behind_another_that_is_resumed_before_its_turn(desk: Desk) -> None:
    _, lease = await desk.begin()
    second = await desk.submit(conversation_id=lease.conversation_id)
    await desk.act(second.run_id, PAUSE)
    assert await _resume(desk, second.run_id) == []
    assert (await desk.get(second.run_id)).status is RunStatus.QUEUED
    assert (await desk.finish(lease)).next_run == second.run_id
    (entered,) = await desk.attend(second.run_id, "start")
    assert [each.step for each in entered.deliveries] == ["1"]


async def test_a_run_that_is_next_and_not_yet_woken(desk: Desk) -> None:
    _, lease = await desk.begin()
    second = await desk.submit(conversation_id=lease.conversation_id)
    await desk.finish(lease)
    assert (await desk.act(second.run_id, PAUSE)).settled.status == "paused"
    assert await _resume(desk, second.run_id) == []
    (entered,) = await desk.attend(second.run_id, "start")
    assert [each.step for each in entered.deliveries] == ["1"]


@pytest.mark.parametrize("resumed", ["before", "after"])
async def test_a_scheduled_run(desk: Desk, resumed: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    run_id = (await desk.submit(start_after=later)).run_id
    await desk.act(run_id, PAUSE)
    waiting = (await desk.get(run_id)).waiting
    assert waiting is not None
    assert waiting.reason is WaitReason.SCHEDULED
    if resumed == "before":
        assert await _resume(desk, run_id) == []
        (started,) = await desk.hasten(run_id, "start")
        deliveries = list(started.deliveries)
    else:
        (started,) = await desk.hasten(run_id, "start")
        assert (started.status, started.deliveries) == ("paused", ())
        deliveries = await _resume(desk, run_id)
    assert [each.step for each in deliveries] == ["1"]
    assert (await desk.get(run_id)).status is RunStatus.QUEUED


async def test_start_by_holds_for_a_paused_run_too(desk: Desk, redis: Any) -> None:
    run_id = (await desk.submit(start_by=datetime.now(UTC) + timedelta(hours=1))).run_id
    await desk.act(run_id, PAUSE)
    await redis.hset(keys.run(run_id), "start_by", 2)
    await desk.hasten(run_id, "end")
    run = await desk.get(run_id)
    assert (run.status, run.stop_reason) == (RunStatus.EXPIRED, StopReason.DEADLINE)


async def test_start_by_does_not_hold_for_a_run_that_was_begun(desk: Desk, redis: Any) -> None:
    run_id, lease = await desk.begin(start_by=datetime.now(UTC) + timedelta(hours=1))
    await desk.act(run_id, PAUSE)
    await desk.retry(lease)
    await redis.hset(keys.run(run_id), "start_by", 2)
    await desk.hasten(run_id, "end")
    assert (await desk.get(run_id)).status is RunStatus.PAUSED


async def test_a_run_that_waits_for_actions(desk: Desk) -> None:
    run_id, _ = await desk.turn("p1", "o1", approval=["p1"], client=["o1"])
    assert (await desk.act(run_id, PAUSE)).settled.status == "paused"
    run = await desk.get(run_id)
    assert ([action.call_id for action in run.pending_actions], run.waiting) == (["p1", "o1"], None)

    assert await _resume(desk, run_id) == []
    run = await desk.get(run_id)
    assert (run.status, run.waiting and run.waiting.reason) == (RunStatus.REQUIRES_ACTION, WaitReason.APPROVAL)
    assert (await desk.kinds(run_id))[-5:] == ["run.requires_action", *PAUSED, "run.resumed", "run.requires_action"]


async def test_decisions_and_outputs_come_in_meanwhile(desk: Desk) -> None:
    run_id, _ = await desk.turn("p1", "o1", "p2", approval=["p1", "p2"], client=["o1"])
    await desk.act(run_id, PAUSE)
    approved, denied = await desk.action(run_id, "p1"), await desk.action(run_id, "p2")
    acted = await desk.act(run_id, approve(approved.id), deny(denied.id), output("o1"))
    assert (acted.settled.status, acted.settled.deliveries) == ("paused", ())
    assert [call for call, _ in await desk.results(run_id)] == ["p2", "o1"]

    (delivery,) = await _resume(desk, run_id)
    assert delivery.step == "1/p1"
    assert (await desk.get(run_id)).waiting is None
    assert [each.step for each in (await desk.answer(await desk.claim(delivery))).deliveries] == ["2"]


async def test_the_last_result_comes_in_meanwhile(desk: Desk) -> None:
    run_id, _ = await desk.turn("o1", client=["o1"])
    await desk.act(run_id, PAUSE)
    acted = await desk.act(run_id, output("o1"), say("look again"))
    assert (acted.settled.status, acted.settled.deliveries) == ("paused", ())
    (delivery,) = await _resume(desk, run_id)
    assert (desk.said(await desk.claim(delivery)))[-2:] == ["seen", "look again"]


async def test_calls_that_would_wait_are_asked_for_while_pausing(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, PAUSE)
    await desk.ask(lease, "p1", approval=["p1"])
    run = await desk.get(run_id)
    assert (run.status, len(run.pending_actions)) == (RunStatus.PAUSED, 1)
    assert "run.requires_action" not in await desk.kinds(run_id)
    assert await _resume(desk, run_id) == []
    assert (await desk.get(run_id)).status is RunStatus.REQUIRES_ACTION


async def test_a_decision_while_a_tool_finishes_before_the_pause(desk: Desk) -> None:
    run_id, (delivery,) = await desk.turn("c1", "p1", approval=["p1"])
    lease = await desk.claim(delivery)
    await desk.act(run_id, PAUSE)
    acted = await desk.act(run_id, approve())
    assert (acted.settled.status, acted.settled.deliveries) == ("running", ())
    assert (await desk.answer(lease)).status == "paused"
    assert [each.step for each in await _resume(desk, run_id)] == ["1/p1"]


async def test_pause_and_decision_in_one_request(desk: Desk) -> None:
    for items in ((PAUSE, approve()), (approve(), PAUSE)):
        run_id, _ = await desk.turn("p1", approval=["p1"])
        assert (await desk.act(run_id, *items)).settled.status == "paused"
        assert [each.step for each in await _resume(desk, run_id)] == ["1/p1"]


async def test_resume_before_the_pause_holds(desk: Desk) -> None:
    run_id, deliveries = await desk.turn("c1", "c2")
    lease = await desk.claim(deliveries[0])
    await desk.act(run_id, PAUSE)
    (delivery,) = await _resume(desk, run_id)
    run = await desk.get(run_id)
    assert (run.status, run.pausing, delivery.step) == (RunStatus.RUNNING, False, "1/c2")
    assert (await desk.answer(lease)).status == "running"
    assert (await desk.kinds(run_id)).count("run.paused") == 0


async def test_only_what_is_paused_can_be_resumed(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    with pytest.raises(StateConflict) as refused:
        await desk.act(run_id, RESUME)
    assert refused.value.code == "not_paused"
    await desk.act(run_id, PAUSE)
    await desk.act(run_id, RESUME, RESUME)
    assert (await desk.kinds(run_id)).count("run.resumed") == 1
    await desk.finish(lease)
    for item in (PAUSE, RESUME):
        with pytest.raises(StateConflict) as refused:
            await desk.act(run_id, item)
        assert refused.value.code == "run_ended"


async def test_an_answer_that_got_lost(desk: Desk) -> None:
    submitted = await desk.submit()
    with desk.answers_get_lost():
        await desk.act(submitted.run_id, PAUSE)
        (delivery,) = await _resume(desk, submitted.run_id)
    assert (await desk.kinds(submitted.run_id))[2:] == [*PAUSED, "run.resumed"]
    await desk.claim(delivery)


@pytest.mark.parametrize("mode", ["graceful", "now", "rollback"])
async def test_cancel_while_paused(desk: Desk, mode: Any) -> None:
    run_id, deliveries = await desk.turn("c1", "p1", approval=["p1"])
    await desk.act(run_id, PAUSE)
    assert (await desk.store.runs.cancel(run_id, mode=mode)).status == "cancelled"
    assert [call for call, _ in await desk.results(run_id)] == ["c1", "p1"]
    assert await desk.try_claim(deliveries[0]) == Stray("cancelled")


@pytest.mark.parametrize("pause", [PAUSE, PAUSE_NOW])
async def test_cancel_while_pausing(desk: Desk, pause: Any) -> None:
    run_id, lease = await desk.begin()
    await desk.act(run_id, pause)
    assert (await desk.store.runs.cancel(run_id, mode="graceful")).status == "cancelling"
    assert not (await desk.get(run_id)).pausing
    assert await desk.store.steps.renew([lease]) == [Renewal.PROLONGED]
    assert (await desk.hand_back(lease)).status == "cancelled"
    assert "run.paused" not in await desk.kinds(run_id)


async def test_deadline_and_budget_hold_in_a_pause(desk: Desk, redis: Any) -> None:
    for field, status in (("deadline", "expired"), ("started_at", "incomplete")):
        run_id, lease = await desk.begin(budget=Budget(seconds=3600))
        await desk.act(run_id, PAUSE)
        await desk.retry(lease)
        await redis.hset(keys.run(run_id), field, 2)
        await desk.hasten(run_id, "end")
        assert (await desk.get(run_id)).status == status


async def test_limits_hold_when_it_goes_on(desk: Desk) -> None:
    run_id, lease = await desk.begin(agent=AgentSpec(model="fake/echo", max_steps=1))
    second = await desk.submit(conversation_id=lease.conversation_id)
    (delivery,) = await desk.ask(lease, "c1")
    tool = await desk.claim(delivery)
    await desk.act(run_id, PAUSE)
    assert (await desk.answer(tool)).status == "paused"
    acted = await desk.act(run_id, RESUME)
    assert (acted.settled.status, acted.settled.next_run) == ("incomplete", second.run_id)


async def test_a_fallback_in_a_pause(desk: Desk) -> None:
    agent = AgentSpec(model="fake/echo", fallbacks=("fake/other",))
    run_id, lease = await desk.begin(agent=agent)
    await desk.act(run_id, PAUSE)
    await desk.store.steps.settle(lease, RetryAfter(0, RATE_LIMITED, fallback=True))
    (delivery,) = await _resume(desk, run_id)
    again = await desk.claim(delivery)
    assert (again.agent.model, again.attempt) == ("fake/other", 1)
