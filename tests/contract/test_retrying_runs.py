"""Going on with a run that has ended, and making one of its steps anew in another conversation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.errors import IdempotencyMismatch, StateConflict, UnknownRun
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import AgentSpec, Budget, Message, Retry
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Condensed, Continue, GiveUp
from palaver.store.redis import keys
from palaver.store.runs.runs import Submitted
from palaver.vocabulary.ids import new_run_id
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.contract.store_driver import AGENT, INTERNAL, StoreDriver, say

OTHER = AgentSpec(model="fake/other", max_steps=9)
ANSWERED = ["hello", "let me see", "42"]


async def _retry(driver: StoreDriver, run_id: str, key: str | None = None, **wanted: Any) -> Submitted:
    return await driver.store.control.retry(run_id, Retry(**wanted), idempotency_key=key)


async def _refused(driver: StoreDriver, run_id: str, **wanted: Any) -> str:
    with pytest.raises(StateConflict) as refused:
        await _retry(driver, run_id, **wanted)
    return refused.value.code


async def _failed(driver: StoreDriver, **more: Any) -> tuple[str, Lease]:
    """A run that failed at its second model call, and the lease on that."""
    run_id, lease = await driver.begin(**more)
    (delivery,) = await driver.ask(lease, "c1")
    (delivery,) = (await driver.answer(await driver.claim(delivery))).deliveries
    lease = await driver.claim(delivery)
    await driver.give_up(lease)
    return run_id, lease


async def test_a_failed_run_is_gone_on_with_where_it_stopped(driver: StoreDriver) -> None:
    old, lease = await _failed(driver, budget=Budget(tokens=500), metadata={"k": "v"}, tags=("t",))
    before = await driver.get(old)
    submitted = await _retry(driver, old)

    new = await driver.get(submitted.run_id)
    assert (new.retried_from, new.conversation_id, new.agent) == (old, before.conversation_id, AGENT)
    assert (new.budget, new.metadata, new.tags) == (before.budget, {"k": "v"}, ("t",))
    assert (new.usage.model_calls, submitted.replayed, submitted.steered) == (0, False, False)
    lease = await driver.claim(submitted.deliveries[0], known=lease.log.position)
    assert (lease.step, lease.log.entries) == ("1", ())
    assert driver.said(await driver.anew(lease)) == ANSWERED
    await driver.finish(lease)
    assert await driver.get(old) == before.model_copy(update={"retried_as": new.id})


async def test_it_may_have_another_agent_budget_and_deadline(driver: StoreDriver) -> None:
    old, _ = await _failed(driver)
    ends = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0)
    new = await driver.get((await _retry(driver, old, agent=OTHER, budget=Budget(tokens=5), deadline=ends)).run_id)
    assert (new.agent, new.budget, new.times.deadline) == (OTHER, Budget(tokens=5), ends)


@pytest.mark.parametrize("ends", ["max_steps", "deadline", "budget", "stuck"])
async def test_what_a_limit_ended_goes_on(driver: StoreDriver, redis: Any, ends: str) -> None:
    one = AgentSpec(model="fake/echo", max_steps=1 if ends == "max_steps" else 5)
    run_id, lease = await driver.begin(agent=one, budget=Budget(tool_calls=1, seconds=3600))
    match ends:
        case "max_steps":
            (delivery,) = await driver.ask(lease, "c1")
            await driver.answer(await driver.claim(delivery))
        case "budget":
            await driver.ask(lease, "c1", "c2")
        case "stuck":
            (delivery,) = await driver.ask(lease, "c1")
            (delivery,) = (await driver.answer(await driver.claim(delivery))).deliveries
            await driver.store.steps.settle(await driver.claim(delivery), GiveUp(INTERNAL, StopReason.STUCK))
        case _:
            await redis.hset(keys.run(run_id), "deadline", 2)
            await driver.hasten(run_id, "end")
    run = await driver.get(run_id)
    assert run.stop_reason == ends
    submitted = await _retry(driver, run_id)
    lease = await driver.claim(submitted.deliveries[0])
    said = driver.said(lease)
    assert said[0] == "hello"
    assert {"budget": 4, "deadline": 1}.get(ends, 3) == len(said)


async def test_the_results_that_sealed_the_turn_are_told(driver: StoreDriver) -> None:
    run_id, (delivery, _) = await driver.turn("c1", "c2")
    await driver.give_up(await driver.claim(delivery))
    said = driver.said(await driver.claim((await _retry(driver, run_id)).deliveries[0]))
    assert said == ["hello", "let me see", "Internal error.", "Not started: the run ended (error)."]


@pytest.mark.parametrize("said", [(), ("in metres", "please")])
async def test_a_run_that_never_began_says_its_input_now(
    driver: StoreDriver, redis: Any, said: tuple[str, ...]
) -> None:
    _, lease = await driver.begin()
    expired = await driver.submit("second", conversation_id=lease.conversation_id)
    for words in said:
        await driver.act(expired.run_id, say(words))
    await driver.finish(lease)
    await redis.hset(keys.run(expired.run_id), "deadline", 2)
    await driver.hasten(expired.run_id, "end")
    assert (await driver.get(expired.run_id)).status is RunStatus.EXPIRED

    submitted = await _retry(driver, expired.run_id)
    assert driver.said(await driver.claim(submitted.deliveries[0])) == ["hello", "bye", "second", *said]
    assert await driver.waiting_input(submitted.run_id) == []


async def test_words_that_came_too_late_are_answered_now(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(agent=AgentSpec(model="fake/echo", max_steps=1))
    await driver.act(run_id, say("and in feet?"))
    await driver.finish(lease)
    said = driver.said(await driver.claim((await _retry(driver, run_id)).deliveries[0]))
    assert said == ["hello", "bye", "and in feet?"]


async def test_what_has_nothing_to_go_on_with(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    assert await _refused(driver, run_id) == "run_active"
    assert await _refused(driver, run_id, from_step=1) == "run_active"
    await driver.finish(lease)
    assert await _refused(driver, run_id) == "nothing_to_retry"

    for mode in ("now", "rollback"):
        run_id, lease = await driver.begin()
        await driver.store.runs.cancel(run_id, mode=mode)
        assert await _refused(driver, run_id) == "run_active"
        await driver.finish(lease)
        assert await _refused(driver, run_id) == "nothing_to_retry"

    run_id, lease = await driver.begin()
    await driver.finish(lease, StopReason.MAX_TOKENS)
    assert await _refused(driver, run_id) == "nothing_to_retry"
    with pytest.raises(UnknownRun):
        await _retry(driver, new_run_id("00"))


async def test_only_right_behind_the_run_that_it_goes_on_with(driver: StoreDriver) -> None:
    old, lease = await _failed(driver)
    second = await driver.submit(conversation_id=lease.conversation_id)
    assert await _refused(driver, old) == "conversation_moved_on"
    await driver.finish(await driver.claim(second.deliveries[0]))
    assert await _refused(driver, old) == "conversation_moved_on"

    old, _ = await _failed(driver)
    first = await _retry(driver, old)
    assert await _refused(driver, old) == "conversation_moved_on"
    await driver.give_up(await driver.claim(first.deliveries[0]))
    assert await _refused(driver, old) == "conversation_moved_on"
    again = await _retry(driver, first.run_id)
    assert (await driver.get(again.run_id)).retried_from == first.run_id
    await driver.store.runs.cancel(again.run_id)


async def test_a_run_that_is_scheduled_does_not_keep_it_back(driver: StoreDriver) -> None:
    old, lease = await _failed(driver)
    later = datetime.now(UTC) + timedelta(hours=1)
    await driver.submit(conversation_id=lease.conversation_id, start_after=later)
    assert len((await _retry(driver, old)).deliveries) == 1


async def test_the_same_key_and_answers_that_get_lost(driver: StoreDriver) -> None:
    for wanted in ({}, {"from_step": 1}):
        old, _ = await _failed(driver)
        runs = len((await driver.store.runs.list(RunFilter(), limit=100)).runs)
        with driver.answers_get_lost():
            first = await _retry(driver, old, str(wanted), **wanted)
        again = await _retry(driver, old, str(wanted), **wanted)
        assert (len(first.deliveries), first.replayed) == (1, False)
        assert (again.run_id, again.replayed, again.deliveries) == (first.run_id, True, ())
        assert len((await driver.store.runs.list(RunFilter(), limit=100)).runs) == runs + 1
        with pytest.raises(IdempotencyMismatch):
            await _retry(driver, old, str(wanted), budget=Budget(tokens=1))


async def test_a_fork_has_everything_before_its_step(driver: StoreDriver) -> None:
    old, lease = await _failed(driver)
    source = await driver.log(old)
    submitted = await _retry(driver, old, from_step=1, input="thrice")

    new = await driver.get(submitted.run_id)
    assert (new.retried_from, new.conversation_id != lease.conversation_id) == (old, True)
    assert driver.said(await driver.claim(submitted.deliveries[0])) == ["hello", "thrice"]
    log = await driver.log(new.id)
    assert [entry.type for entry in log[:3]] == ["run.created", "message.created", "run.started"]
    assert {entry.run_id for entry in log[:3]} == {old}
    assert log[3].type == "run.created"
    assert await driver.log(old) == source
    assert (await driver.store.runs.conversation(lease.conversation_id)).active_run is None
    await driver.store.runs.cancel(new.id)


async def test_a_fork_in_the_middle_of_a_busy_conversation(driver: StoreDriver) -> None:
    old, lease = await _failed(driver)
    _, busy = await driver.begin(input="next", conversation_id=lease.conversation_id)
    (delivery,) = await driver.ask(busy, "c1")
    assert await _refused(driver, old, from_step=3) == "unknown_step"
    run_id, lease = await driver.begin()
    (delivery,) = (await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    lease = await driver.claim(delivery)
    await driver.finish(lease, text="done")
    submitted = await _retry(driver, run_id, from_step=2)
    assert driver.said(await driver.claim(submitted.deliveries[0])) == ["hello", "hm"]
    await driver.store.runs.cancel(submitted.run_id)


async def test_a_fork_from_the_step_that_failed_has_all_that_was_said(driver: StoreDriver) -> None:
    old, _ = await _failed(driver)
    step = (await driver.get(old)).step
    retried = driver.said(await driver.claim((await _retry(driver, old, from_step=step)).deliveries[0]))
    assert retried[0] == "hello"
    assert retried == driver.said(await driver.claim((await _retry(driver, old)).deliveries[0]))


async def test_a_fork_from_the_first_step_of_a_retry_that_failed(driver: StoreDriver) -> None:
    old, _ = await _failed(driver)
    again = await _retry(driver, old)
    await driver.give_up(await driver.claim(again.deliveries[0]))
    fork = await _retry(driver, again.run_id, from_step=1, input="and now?")
    assert driver.said(await driver.claim(fork.deliveries[0])) == [*ANSWERED, "and now?"]


@pytest.mark.parametrize("step", [3, 99])
async def test_a_step_that_is_not_there_cannot_be_forked_from(driver: StoreDriver, redis: Any, step: int) -> None:
    old, _ = await _failed(driver)
    before = sorted(await redis.keys("*"))
    assert await _refused(driver, old, from_step=step) == "unknown_step"
    assert sorted(await redis.keys("*")) == before


async def test_a_completed_or_cancelled_run_can_be_forked(driver: StoreDriver) -> None:
    for how in ("finished", "cancelled"):
        run_id, lease = await driver.begin()
        if how == "cancelled":
            await driver.store.runs.cancel(run_id)
        await driver.finish(lease)
        submitted = await _retry(driver, run_id, from_step=1)
        assert driver.said(await driver.claim(submitted.deliveries[0])) == ["hello"]


async def test_what_was_rolled_back_before_is_not_told_in_a_fork_either(driver: StoreDriver) -> None:
    oops, lease = await driver.begin(input="oops")
    await driver.store.runs.cancel(oops, mode="rollback")
    await driver.finish(lease)
    run_id, lease = await driver.begin(input="one", conversation_id=lease.conversation_id)
    await driver.finish(lease)

    submitted = await _retry(driver, run_id, from_step=1)
    (delivery,) = submitted.deliveries
    lease = await driver.claim(delivery)
    assert driver.said(lease) == ["one"]
    log = await driver.log(submitted.run_id)
    assert {entry.withdrawn for entry in log if entry.run_id == oops and "message" in entry.data} == {True}
    (delivery,) = (await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    assert not (await driver.claim(delivery, known=lease.log.position)).log.rebuilt


async def test_a_run_that_was_rolled_back_can_be_forked(driver: StoreDriver) -> None:
    """What it said before the step counts there: that is what it is forked for."""
    run_id, lease = await driver.begin()
    (delivery,) = await driver.ask(lease, "c1")
    (delivery,) = (await driver.answer(await driver.claim(delivery))).deliveries
    lease = await driver.claim(delivery)
    await driver.store.runs.cancel(run_id, mode="rollback")
    await driver.finish(lease)
    submitted = await _retry(driver, run_id, from_step=2)
    assert driver.said(await driver.claim(submitted.deliveries[0])) == ANSWERED
    assert not any(entry.withdrawn for entry in await driver.log(submitted.run_id))


async def test_a_summary_is_taken_over_with_the_log(driver: StoreDriver) -> None:
    _, lease = await driver.begin(input="one")
    await driver.finish(lease)
    run_id, lease = await driver.begin(input="two", conversation_id=lease.conversation_id)
    verdict = Continue(Message(role="assistant", content="hm"), notes=(Condensed("one", 3),))
    (delivery,) = (await driver.store.steps.settle(lease, verdict)).deliveries
    await driver.finish(await driver.claim(delivery))
    for step, throughs in ((1, [0, 0, 0, 3]), (2, [0, 0, 0, 3, 0])):
        submitted = await _retry(driver, run_id, from_step=step)
        assert [entry.through for entry in (await driver.claim(submitted.deliveries[0])).log.entries] == throughs


async def test_a_fork_can_be_forked_and_deleted(driver: StoreDriver, redis: Any) -> None:
    old, _ = await _failed(driver)
    kept = await driver.everything()
    fork = await _retry(driver, old, from_step=1)
    await driver.finish(await driver.claim(fork.deliveries[0]))
    second = await _retry(driver, fork.run_id, from_step=1)
    await driver.finish(await driver.claim(second.deliveries[0]))
    for run_id in (fork.run_id, second.run_id):
        conversation = (await driver.get(run_id)).conversation_id
        await driver.store.control.delete_conversation(conversation)
    assert await driver.everything() == kept
