"""Deleting runs and conversations: what they said is gone, for readers and for models."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.errors import StateConflict, UnknownConversation, UnknownRun
from palaver.filters import RunFilter
from palaver.ids import new_id
from palaver.models import Message, Retry
from palaver.store import keys
from palaver.verdicts import Condensed, Continue
from tests.contract.desk import PAUSE, Desk


async def _run(desk: Desk, word: str, conversation_id: str | None = None) -> tuple[str, str]:
    """A run that has ended: its id and its conversation's."""
    run_id, lease = await desk.begin(input=word, conversation_id=conversation_id)
    (delivery,) = await desk.ask(lease, "c1")
    (delivery,) = (await desk.answer(await desk.claim(delivery))).deliveries
    await desk.finish(await desk.claim(delivery), text=f"{word}!")
    return run_id, lease.conversation_id


async def test_a_deleted_run_is_gone(desk: Desk, redis: Any) -> None:
    run_id, conversation = await _run(desk, "one")
    other, _ = await _run(desk, "two", conversation)
    await desk.store.control.delete_run(run_id)

    with pytest.raises(UnknownRun):
        await desk.get(run_id)
    with pytest.raises(UnknownRun):
        await desk.events(run_id)
    page = await desk.store.runs.list(RunFilter(conversation_id=conversation), limit=10)
    assert [run.id for run in page.runs] == [other]
    assert {entry.run_id for entry in await desk.log(other)} == {other}
    assert not [key for key in await redis.keys("*") if run_id.encode() in key]
    assert (await desk.kinds(other))[-1] == "run.finished"
    with pytest.raises(UnknownRun):
        await desk.store.control.delete_run(run_id)
    with pytest.raises(UnknownRun):
        await desk.store.control.delete_run("nonsense")


async def test_no_model_is_told_of_it(desk: Desk) -> None:
    first, conversation = await _run(desk, "one")
    second, _ = await _run(desk, "two", conversation)
    submitted = await desk.submit("three", conversation_id=conversation)
    lease = await desk.claim(submitted.deliveries[0])
    await desk.store.control.delete_run(first)
    (delivery,) = (await desk.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    await desk.store.control.delete_run(second)

    last = await desk.claim(delivery, known=lease.position)
    assert (last.rebuilt, desk.said(last)) == (True, ["three", "hm"])
    for word in ("hm again", "and again"):
        (delivery,) = (
            await desk.store.steps.settle(last, Continue(Message(role="assistant", content=word)))
        ).deliveries
        known, last = last.position, await desk.claim(delivery, known=last.position)
    assert (last.position > known, last.rebuilt, desk.said(last)) == (True, False, ["and again"])
    await desk.finish(last)


async def test_a_worker_that_knew_it_to_the_last_entry_begins_anew(desk: Desk) -> None:
    first, conversation = await _run(desk, "one")
    _, lease = await desk.begin(input="two", conversation_id=conversation)
    assert lease.position == (await desk.store.runs.conversation(conversation)).entries
    await desk.store.control.delete_run(first)
    (delivery,) = (await desk.hand_back(lease)).deliveries
    again = await desk.claim(delivery, known=lease.position)
    assert (again.rebuilt, desk.said(again)) == (True, ["two"])
    await desk.finish(again)


async def test_a_summary_of_it_is_deleted_too(desk: Desk) -> None:
    first, conversation = await _run(desk, "one")
    second, lease = await desk.begin(input="two", conversation_id=conversation)
    verdict = Continue(Message(role="assistant", content="hm"), notes=(Condensed("one said one", lease.position - 3),))
    (delivery,) = (await desk.store.steps.settle(lease, verdict)).deliveries
    await desk.finish(await desk.claim(delivery), text="two!")
    await desk.store.control.delete_run(first)

    assert "conversation.condensed" not in [entry.type for entry in await desk.log(second)]
    _, lease = await desk.begin(input="three", conversation_id=conversation)
    assert desk.said(lease) == ["two", "hm", "two!", "three"]


async def test_a_summary_from_before_it_stays(desk: Desk) -> None:
    _, conversation = await _run(desk, "one")
    second, lease = await desk.begin(input="two", conversation_id=conversation)
    third = await desk.submit("three", conversation_id=conversation)
    verdict = Continue(Message(role="assistant", content="hm"), notes=(Condensed("one said one", lease.position - 3),))
    (delivery,) = (await desk.store.steps.settle(lease, verdict)).deliveries
    await desk.finish(await desk.claim(delivery))
    (entered,) = await desk.attend(third.run_id, "start")
    await desk.finish(await desk.claim(entered.deliveries[0]))
    await desk.store.control.delete_run(third.run_id)
    assert "conversation.condensed" in [entry.type for entry in await desk.log(second)]


async def test_a_run_that_never_began_takes_nothing_with_it(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    queued = await desk.submit("queued", conversation_id=lease.conversation_id)
    await desk.store.runs.cancel(queued.run_id)
    (delivery,) = await desk.ask(lease, "c1")
    before = [entry for entry in await desk.log(run_id) if entry.run_id == run_id]
    await desk.store.control.delete_run(queued.run_id)

    assert await desk.log(run_id) == before
    (delivery,) = (await desk.answer(await desk.claim(delivery))).deliveries
    again = await desk.claim(delivery, known=lease.position)
    assert (again.rebuilt, desk.said(again)) == (False, ["let me see", "42"])
    await desk.finish(again)


async def test_one_that_was_rolled_back(desk: Desk) -> None:
    first, conversation = await _run(desk, "one")
    run_id, lease = await desk.begin(input="oops", conversation_id=conversation)
    await desk.store.runs.cancel(run_id, mode="rollback")
    await desk.finish(lease)
    await desk.store.control.delete_run(run_id)
    _, lease = await desk.begin(input="two", conversation_id=conversation)
    assert desk.said(lease) == ["one", "let me see", "42", "one!", "two"]
    assert {entry.run_id for entry in await desk.log(first)} == {first, lease.run_id}


@pytest.mark.parametrize("state", ["ready", "leased", "cancelling", "queued", "scheduled", "paused", "waits"])
async def test_what_has_not_ended_is_not_deleted(desk: Desk, redis: Any, state: str) -> None:
    match state:
        case "waits":
            run_id, _ = await desk.turn("p1", approval=["p1"])
        case "queued":
            _, lease = await desk.begin()
            run_id = (await desk.submit(conversation_id=lease.conversation_id)).run_id
        case "scheduled":
            run_id = (await desk.submit(start_after=datetime.now(UTC) + timedelta(hours=1))).run_id
        case "leased" | "cancelling":
            run_id, _ = await desk.begin()
            if state == "cancelling":
                await desk.store.runs.cancel(run_id)
        case _:
            run_id = (await desk.submit()).run_id
            if state == "paused":
                await desk.act(run_id, PAUSE)
    before = await desk.everything()
    with pytest.raises(StateConflict) as refused:
        await desk.store.control.delete_run(run_id)
    assert (refused.value.code, refused.value.run_id) == ("run_active", run_id)
    with pytest.raises(StateConflict) as refused:
        await desk.store.control.delete_conversation((await desk.get(run_id)).conversation_id)
    assert refused.value.code == "conversation_busy"
    assert await desk.everything() == before


async def test_the_outcome_of_a_deleted_run_is_forgotten(desk: Desk) -> None:
    first, lease = await desk.begin()
    conversation = lease.conversation_id
    await desk.give_up(lease)
    second, _ = await _run(desk, "two", conversation)
    await desk.store.control.delete_run(second)
    assert (await desk.store.runs.conversation(conversation)).last_outcome is None
    with pytest.raises(StateConflict) as refused:
        await desk.store.control.retry(first, Retry())
    assert refused.value.code == "conversation_moved_on"

    third, _ = await _run(desk, "three", conversation)
    await desk.store.control.delete_run(first)
    outcome = (await desk.store.runs.conversation(conversation)).last_outcome
    assert outcome is not None
    assert outcome.run_id == third


async def test_a_deleted_conversation_is_gone_with_all_its_runs(desk: Desk, redis: Any) -> None:
    await _run(desk, "other")
    kept = await desk.everything()
    first, conversation = await _run(desk, "one")
    second, _ = await _run(desk, "two", conversation)
    cancelled = await desk.submit(conversation_id=conversation, start_after=datetime.now(UTC) + timedelta(hours=1))
    await desk.store.runs.cancel(cancelled.run_id)
    await desk.store.control.delete_conversation(conversation)

    for run_id in (first, second, cancelled.run_id):
        with pytest.raises(UnknownRun):
            await desk.get(run_id)
    assert await desk.everything() == kept
    for again in (conversation, new_id("conv", "00"), "nonsense"):
        with pytest.raises(UnknownConversation):
            await desk.store.control.delete_conversation(again)
    with pytest.raises(UnknownConversation):
        await desk.submit(conversation_id=conversation)


async def test_an_empty_conversation_and_one_with_deleted_runs(desk: Desk, redis: Any) -> None:
    empty = await desk.store.runs.create_conversation(None)
    await desk.store.control.delete_conversation(empty.id)
    run_id, conversation = await _run(desk, "one")
    await desk.store.control.delete_run(run_id)
    await desk.store.control.delete_conversation(conversation)
    assert await redis.keys("*") == []


async def test_an_answer_that_got_lost(desk: Desk) -> None:
    run_id, conversation = await _run(desk, "one")
    with desk.answers_get_lost():
        await desk.store.control.delete_run(run_id)
        await desk.store.control.delete_conversation(conversation)
    with pytest.raises(UnknownConversation):
        await desk.store.runs.conversation(conversation)


async def test_a_run_that_outlived_its_conversation(desk: Desk, redis: Any) -> None:
    """Both expire at about the same time; in any order."""
    run_id, conversation = await _run(desk, "one")
    await redis.delete(keys.conversation(conversation), keys.log(conversation))
    await desk.store.control.delete_run(run_id)
    assert await redis.keys("*") == []
