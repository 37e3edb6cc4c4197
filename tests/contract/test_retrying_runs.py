"""Going on with a run that has ended, and making one of its steps anew in another conversation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.errors import IdempotencyMismatch, StateConflict, UnknownRun
from palaver.filters import RunFilter
from palaver.ids import new_id
from palaver.leases import Lease
from palaver.lifecycle import RunStatus, StopReason
from palaver.models import AgentSpec, Budget, Message, Retry
from palaver.store import keys
from palaver.store.runs import Submitted
from palaver.verdicts import Condensed, Continue, GiveUp
from tests.contract.desk import AGENT, INTERNAL, Desk, say

OTHER = AgentSpec(model="fake/other", max_steps=9)
ANSWERED = ["hello", "let me see", "42"]


async def _retry(desk: Desk, run_id: str, key: str | None = None, **wanted: Any) -> Submitted:
    return await desk.store.control.retry(run_id, Retry(**wanted), idempotency_key=key)


async def _refused(desk: Desk, run_id: str, **wanted: Any) -> str:
    with pytest.raises(StateConflict) as refused:
        await _retry(desk, run_id, **wanted)
    return refused.value.code


async def _failed(desk: Desk, **more: Any) -> tuple[str, Lease]:
    """A run that failed at its second model call, and the lease on that."""
    run_id, lease = await desk.begin(**more)
    (delivery,) = await desk.ask(lease, "c1")
    (delivery,) = (await desk.answer(await desk.claim(delivery))).deliveries
    lease = await desk.claim(delivery)
    await desk.give_up(lease)
    return run_id, lease


async def test_a_failed_run_is_gone_on_with_where_it_stopped(desk: Desk) -> None:
    old, lease = await _failed(desk, budget=Budget(tokens=500), metadata={"k": "v"}, tags=("t",))
    before = await desk.get(old)
    submitted = await _retry(desk, old)

    new = await desk.get(submitted.run_id)
    assert (new.retried_from, new.conversation_id, new.agent) == (old, before.conversation_id, AGENT)
    assert (new.budget, new.metadata, new.tags) == (before.budget, {"k": "v"}, ("t",))
    assert (new.usage.model_calls, submitted.replayed, submitted.steered) == (0, False, False)
    lease = await desk.claim(submitted.deliveries[0], known=lease.position)
    assert (lease.step, lease.entries) == ("1", ())
    assert desk.said(await desk.anew(lease)) == ANSWERED
    await desk.finish(lease)
    assert await desk.get(old) == before


async def test_it_may_have_another_agent_budget_and_deadline(desk: Desk) -> None:
    old, _ = await _failed(desk)
    ends = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0)
    new = await desk.get((await _retry(desk, old, agent=OTHER, budget=Budget(tokens=5), deadline=ends)).run_id)
    assert (new.agent, new.budget, new.times.deadline) == (OTHER, Budget(tokens=5), ends)


@pytest.mark.parametrize("ends", ["max_steps", "deadline", "budget", "stuck"])
async def test_what_a_limit_ended_goes_on(desk: Desk, redis: Any, ends: str) -> None:
    one = AgentSpec(model="fake/echo", max_steps=1 if ends == "max_steps" else 5)
    run_id, lease = await desk.begin(agent=one, budget=Budget(tool_calls=1, seconds=3600))
    match ends:
        case "max_steps":
            (delivery,) = await desk.ask(lease, "c1")
            await desk.answer(await desk.claim(delivery))
        case "budget":
            await desk.ask(lease, "c1", "c2")
        case "stuck":
            (delivery,) = await desk.ask(lease, "c1")
            (delivery,) = (await desk.answer(await desk.claim(delivery))).deliveries
            await desk.store.steps.settle(await desk.claim(delivery), GiveUp(INTERNAL, StopReason.STUCK))
        case _:
            await redis.hset(keys.run(run_id), "deadline", 2)
            await desk.hasten(run_id, "end")
    run = await desk.get(run_id)
    assert run.stop_reason == ends
    submitted = await _retry(desk, run_id)
    lease = await desk.claim(submitted.deliveries[0])
    said = desk.said(lease)
    assert said[0] == "hello"
    assert {"budget": 4, "deadline": 1}.get(ends, 3) == len(said)


async def test_the_results_that_sealed_the_turn_are_told(desk: Desk) -> None:
    run_id, (delivery, _) = await desk.turn("c1", "c2")
    await desk.give_up(await desk.claim(delivery))
    said = desk.said(await desk.claim((await _retry(desk, run_id)).deliveries[0]))
    assert said == ["hello", "let me see", "Internal error.", "Not started: the run ended (error)."]


@pytest.mark.parametrize("said", [(), ("in metres", "please")])
async def test_a_run_that_never_began_says_its_input_now(desk: Desk, redis: Any, said: tuple[str, ...]) -> None:
    _, lease = await desk.begin()
    expired = await desk.submit("second", conversation_id=lease.conversation_id)
    for words in said:
        await desk.act(expired.run_id, say(words))
    await desk.finish(lease)
    await redis.hset(keys.run(expired.run_id), "deadline", 2)
    await desk.hasten(expired.run_id, "end")
    assert (await desk.get(expired.run_id)).status is RunStatus.EXPIRED

    submitted = await _retry(desk, expired.run_id)
    assert desk.said(await desk.claim(submitted.deliveries[0])) == ["hello", "bye", "second", *said]
    assert await desk.store.runs.waiting_input(submitted.run_id) == ()


async def test_words_that_came_too_late_are_answered_now(desk: Desk) -> None:
    run_id, lease = await desk.begin(agent=AgentSpec(model="fake/echo", max_steps=1))
    await desk.act(run_id, say("and in feet?"))
    await desk.finish(lease)
    said = desk.said(await desk.claim((await _retry(desk, run_id)).deliveries[0]))
    assert said == ["hello", "bye", "and in feet?"]


async def test_what_has_nothing_to_go_on_with(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    assert await _refused(desk, run_id) == "run_active"
    assert await _refused(desk, run_id, from_step=1) == "run_active"
    await desk.finish(lease)
    assert await _refused(desk, run_id) == "nothing_to_retry"

    for mode in ("now", "rollback"):
        run_id, lease = await desk.begin()
        await desk.store.runs.cancel(run_id, mode=mode)
        assert await _refused(desk, run_id) == "run_active"
        await desk.finish(lease)
        assert await _refused(desk, run_id) == "nothing_to_retry"

    run_id, lease = await desk.begin()
    await desk.finish(lease, StopReason.MAX_TOKENS)
    assert await _refused(desk, run_id) == "nothing_to_retry"
    with pytest.raises(UnknownRun):
        await _retry(desk, new_id("run", "00"))


async def test_only_right_behind_the_run_that_it_goes_on_with(desk: Desk) -> None:
    old, lease = await _failed(desk)
    second = await desk.submit(conversation_id=lease.conversation_id)
    assert await _refused(desk, old) == "conversation_moved_on"
    await desk.finish(await desk.claim(second.deliveries[0]))
    assert await _refused(desk, old) == "conversation_moved_on"

    old, _ = await _failed(desk)
    first = await _retry(desk, old)
    assert await _refused(desk, old) == "conversation_moved_on"
    await desk.give_up(await desk.claim(first.deliveries[0]))
    assert await _refused(desk, old) == "conversation_moved_on"
    again = await _retry(desk, first.run_id)
    assert (await desk.get(again.run_id)).retried_from == first.run_id
    await desk.store.runs.cancel(again.run_id)


async def test_a_run_that_is_scheduled_does_not_keep_it_back(desk: Desk) -> None:
    old, lease = await _failed(desk)
    later = datetime.now(UTC) + timedelta(hours=1)
    await desk.submit(conversation_id=lease.conversation_id, start_after=later)
    assert len((await _retry(desk, old)).deliveries) == 1


async def test_the_same_key_and_answers_that_get_lost(desk: Desk) -> None:
    for wanted in ({}, {"from_step": 1}):
        old, _ = await _failed(desk)
        runs = len((await desk.store.runs.list(RunFilter(), limit=100)).runs)
        with desk.answers_get_lost():
            first = await _retry(desk, old, str(wanted), **wanted)
        again = await _retry(desk, old, str(wanted), **wanted)
        assert (len(first.deliveries), first.replayed) == (1, False)
        assert (again.run_id, again.replayed, again.deliveries) == (first.run_id, True, ())
        assert len((await desk.store.runs.list(RunFilter(), limit=100)).runs) == runs + 1
        with pytest.raises(IdempotencyMismatch):
            await _retry(desk, old, str(wanted), budget=Budget(tokens=1))


async def test_a_fork_has_everything_before_its_step(desk: Desk) -> None:
    old, lease = await _failed(desk)
    source = await desk.log(old)
    submitted = await _retry(desk, old, from_step=1, input="thrice")

    new = await desk.get(submitted.run_id)
    assert (new.retried_from, new.conversation_id != lease.conversation_id) == (old, True)
    assert desk.said(await desk.claim(submitted.deliveries[0])) == ["hello", "thrice"]
    log = await desk.log(new.id)
    assert [entry.type for entry in log[:3]] == ["run.created", "message.created", "run.started"]
    assert {entry.run_id for entry in log[:3]} == {old}
    assert log[3].type == "run.created"
    assert await desk.log(old) == source
    assert (await desk.store.runs.conversation(lease.conversation_id)).active_run is None
    await desk.store.runs.cancel(new.id)


async def test_a_fork_in_the_middle_of_a_busy_conversation(desk: Desk) -> None:
    old, lease = await _failed(desk)
    _, busy = await desk.begin(input="next", conversation_id=lease.conversation_id)
    (delivery,) = await desk.ask(busy, "c1")
    assert await _refused(desk, old, from_step=3) == "unknown_step"
    run_id, lease = await desk.begin()
    (delivery,) = (await desk.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    lease = await desk.claim(delivery)
    await desk.finish(lease, text="done")
    submitted = await _retry(desk, run_id, from_step=2)
    assert desk.said(await desk.claim(submitted.deliveries[0])) == ["hello", "hm"]
    await desk.store.runs.cancel(submitted.run_id)


async def test_a_fork_from_the_step_that_failed_has_all_that_was_said(desk: Desk) -> None:
    old, _ = await _failed(desk)
    step = (await desk.get(old)).step
    retried = desk.said(await desk.claim((await _retry(desk, old, from_step=step)).deliveries[0]))
    assert retried[0] == "hello"
    assert retried == desk.said(await desk.claim((await _retry(desk, old)).deliveries[0]))


async def test_a_fork_from_the_first_step_of_a_retry_that_failed(desk: Desk) -> None:
    old, _ = await _failed(desk)
    again = await _retry(desk, old)
    await desk.give_up(await desk.claim(again.deliveries[0]))
    fork = await _retry(desk, again.run_id, from_step=1, input="and now?")
    assert desk.said(await desk.claim(fork.deliveries[0])) == [*ANSWERED, "and now?"]


@pytest.mark.parametrize("step", [3, 99])
async def test_a_step_that_is_not_there_cannot_be_forked_from(desk: Desk, redis: Any, step: int) -> None:
    old, _ = await _failed(desk)
    before = sorted(await redis.keys("*"))
    assert await _refused(desk, old, from_step=step) == "unknown_step"
    assert sorted(await redis.keys("*")) == before


async def test_a_completed_or_cancelled_run_can_be_forked(desk: Desk) -> None:
    for how in ("finished", "cancelled"):
        run_id, lease = await desk.begin()
        if how == "cancelled":
            await desk.store.runs.cancel(run_id)
        await desk.finish(lease)
        submitted = await _retry(desk, run_id, from_step=1)
        assert desk.said(await desk.claim(submitted.deliveries[0])) == ["hello"]


async def test_what_was_rolled_back_before_is_not_told_in_a_fork_either(desk: Desk) -> None:
    oops, lease = await desk.begin(input="oops")
    await desk.store.runs.cancel(oops, mode="rollback")
    await desk.finish(lease)
    run_id, lease = await desk.begin(input="one", conversation_id=lease.conversation_id)
    await desk.finish(lease)

    submitted = await _retry(desk, run_id, from_step=1)
    (delivery,) = submitted.deliveries
    lease = await desk.claim(delivery)
    assert desk.said(lease) == ["one"]
    log = await desk.log(submitted.run_id)
    assert {entry.withdrawn for entry in log if entry.run_id == oops and "message" in entry.data} == {True}
    (delivery,) = (await desk.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    assert not (await desk.claim(delivery, known=lease.position)).rebuilt


async def test_a_run_that_was_rolled_back_can_be_forked(desk: Desk) -> None:
    """What it said before the step counts there: that is what it is forked for."""
    run_id, lease = await desk.begin()
    (delivery,) = await desk.ask(lease, "c1")
    (delivery,) = (await desk.answer(await desk.claim(delivery))).deliveries
    lease = await desk.claim(delivery)
    await desk.store.runs.cancel(run_id, mode="rollback")
    await desk.finish(lease)
    submitted = await _retry(desk, run_id, from_step=2)
    assert desk.said(await desk.claim(submitted.deliveries[0])) == ANSWERED
    assert not any(entry.withdrawn for entry in await desk.log(submitted.run_id))


async def test_a_summary_is_taken_over_with_the_log(desk: Desk) -> None:
    _, lease = await desk.begin(input="one")
    await desk.finish(lease)
    run_id, lease = await desk.begin(input="two", conversation_id=lease.conversation_id)
    verdict = Continue(Message(role="assistant", content="hm"), notes=(Condensed("one", 3),))
    (delivery,) = (await desk.store.steps.settle(lease, verdict)).deliveries
    await desk.finish(await desk.claim(delivery))
    for step, throughs in ((1, [0, 0, 0, 3]), (2, [0, 0, 0, 3, 0])):
        submitted = await _retry(desk, run_id, from_step=step)
        assert [entry.through for entry in (await desk.claim(submitted.deliveries[0])).entries] == throughs


async def test_a_fork_can_be_forked_and_deleted(desk: Desk, redis: Any) -> None:
    old, _ = await _failed(desk)
    kept = await desk.everything()
    fork = await _retry(desk, old, from_step=1)
    await desk.finish(await desk.claim(fork.deliveries[0]))
    second = await _retry(desk, fork.run_id, from_step=1)
    await desk.finish(await desk.claim(second.deliveries[0]))
    for run_id in (fork.run_id, second.run_id):
        conversation = (await desk.get(run_id)).conversation_id
        await desk.store.control.delete_conversation(conversation)
    assert await desk.everything() == kept
