"""Deleting runs and conversations: what they said is gone, for readers and for models."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.errors import StateConflict, UnknownConversation, UnknownRun
from palaver.schemas.conversation import NewConversation
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import Message, Retry
from palaver.steps.verdicts import Condensed, Continue
from palaver.store.redis import keys
from palaver.vocabulary.ids import new_conversation_id
from tests.contract.store_driver import PAUSE, StoreDriver


async def _run(driver: StoreDriver, word: str, conversation_id: str | None = None) -> tuple[str, str]:
    """A run that has ended: its id and its conversation's."""
    run_id, lease = await driver.begin(input=word, conversation_id=conversation_id)
    (delivery,) = await driver.ask(lease, "c1")
    (delivery,) = (await driver.answer(await driver.claim(delivery))).deliveries
    await driver.finish(await driver.claim(delivery), text=f"{word}!")
    return run_id, lease.conversation_id


async def test_a_deleted_run_is_gone(driver: StoreDriver, redis: Any) -> None:
    run_id, conversation = await _run(driver, "one")
    other, _ = await _run(driver, "two", conversation)
    await driver.store.control.delete_run(run_id)

    with pytest.raises(UnknownRun):
        await driver.get(run_id)
    with pytest.raises(UnknownRun):
        await driver.events(run_id)
    page = await driver.store.runs.list(RunFilter(conversation_id=conversation), limit=10)
    assert [run.id for run in page.runs] == [other]
    assert {entry.run_id for entry in await driver.log(other)} == {other}
    assert not [key for key in await redis.keys("*") if run_id.encode() in key]
    assert (await driver.kinds(other))[-1] == "run.finished"
    with pytest.raises(UnknownRun):
        await driver.store.control.delete_run(run_id)
    with pytest.raises(UnknownRun):
        await driver.store.control.delete_run("nonsense")


async def test_no_model_is_told_of_it(driver: StoreDriver) -> None:
    first, conversation = await _run(driver, "one")
    second, _ = await _run(driver, "two", conversation)
    submitted = await driver.submit("three", conversation_id=conversation)
    lease = await driver.claim(submitted.deliveries[0])
    await driver.store.control.delete_run(first)
    (delivery,) = (await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")))).deliveries
    await driver.store.control.delete_run(second)

    last = await driver.claim(delivery, known=lease.log.position)
    assert (last.log.rebuilt, driver.said(last)) == (True, ["three", "hm"])
    for word in ("hm again", "and again"):
        (delivery,) = (
            await driver.store.steps.settle(last, Continue(Message(role="assistant", content=word)))
        ).deliveries
        known, last = last.log.position, await driver.claim(delivery, known=last.log.position)
    assert (last.log.position > known, last.log.rebuilt, driver.said(last)) == (True, False, ["and again"])
    await driver.finish(last)


async def test_a_worker_that_knew_it_to_the_last_entry_begins_anew(driver: StoreDriver) -> None:
    first, conversation = await _run(driver, "one")
    _, lease = await driver.begin(input="two", conversation_id=conversation)
    assert lease.log.position == (await driver.store.runs.conversation(conversation)).entries
    await driver.store.control.delete_run(first)
    (delivery,) = (await driver.hand_back(lease)).deliveries
    again = await driver.claim(delivery, known=lease.log.position)
    assert (again.log.rebuilt, driver.said(again)) == (True, ["two"])
    await driver.finish(again)


async def test_a_summary_of_it_is_deleted_too(driver: StoreDriver) -> None:
    first, conversation = await _run(driver, "one")
    second, lease = await driver.begin(input="two", conversation_id=conversation)
    verdict = Continue(
        Message(role="assistant", content="hm"), notes=(Condensed("one said one", lease.log.position - 3),)
    )
    (delivery,) = (await driver.store.steps.settle(lease, verdict)).deliveries
    await driver.finish(await driver.claim(delivery), text="two!")
    await driver.store.control.delete_run(first)

    assert "conversation.condensed" not in [entry.type for entry in await driver.log(second)]
    _, lease = await driver.begin(input="three", conversation_id=conversation)
    assert driver.said(lease) == ["two", "hm", "two!", "three"]


async def test_a_summary_from_before_it_stays(driver: StoreDriver) -> None:
    _, conversation = await _run(driver, "one")
    second, lease = await driver.begin(input="two", conversation_id=conversation)
    third = await driver.submit("three", conversation_id=conversation)
    verdict = Continue(
        Message(role="assistant", content="hm"), notes=(Condensed("one said one", lease.log.position - 3),)
    )
    (delivery,) = (await driver.store.steps.settle(lease, verdict)).deliveries
    await driver.finish(await driver.claim(delivery))
    (entered,) = await driver.sweep(third.run_id, "start")
    await driver.finish(await driver.claim(entered.deliveries[0]))
    await driver.store.control.delete_run(third.run_id)
    assert "conversation.condensed" in [entry.type for entry in await driver.log(second)]


async def test_a_run_that_never_began_takes_nothing_with_it(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    queued = await driver.submit("queued", conversation_id=lease.conversation_id)
    await driver.store.runs.cancel(queued.run_id)
    (delivery,) = await driver.ask(lease, "c1")
    before = [entry for entry in await driver.log(run_id) if entry.run_id == run_id]
    await driver.store.control.delete_run(queued.run_id)

    assert await driver.log(run_id) == before
    (delivery,) = (await driver.answer(await driver.claim(delivery))).deliveries
    again = await driver.claim(delivery, known=lease.log.position)
    assert (again.log.rebuilt, driver.said(again)) == (False, ["let me see", "42"])
    await driver.finish(again)


async def test_one_that_was_rolled_back(driver: StoreDriver) -> None:
    first, conversation = await _run(driver, "one")
    run_id, lease = await driver.begin(input="oops", conversation_id=conversation)
    await driver.store.runs.cancel(run_id, mode="rollback")
    await driver.finish(lease)
    await driver.store.control.delete_run(run_id)
    _, lease = await driver.begin(input="two", conversation_id=conversation)
    assert driver.said(lease) == ["one", "let me see", "42", "one!", "two"]
    assert {entry.run_id for entry in await driver.log(first)} == {first, lease.run_id}


@pytest.mark.parametrize("state", ["ready", "leased", "cancelling", "queued", "scheduled", "paused", "waits"])
async def test_what_has_not_ended_is_not_deleted(driver: StoreDriver, redis: Any, state: str) -> None:
    match state:
        case "waits":
            run_id, _ = await driver.turn("p1", approval=["p1"])
        case "queued":
            _, lease = await driver.begin()
            run_id = (await driver.submit(conversation_id=lease.conversation_id)).run_id
        case "scheduled":
            run_id = (await driver.submit(start_after=datetime.now(UTC) + timedelta(hours=1))).run_id
        case "leased" | "cancelling":
            run_id, _ = await driver.begin()
            if state == "cancelling":
                await driver.store.runs.cancel(run_id)
        case _:
            run_id = (await driver.submit()).run_id
            if state == "paused":
                await driver.act(run_id, PAUSE)
    before = await driver.everything()
    with pytest.raises(StateConflict) as refused:
        await driver.store.control.delete_run(run_id)
    assert (refused.value.code, refused.value.run_id) == ("run_active", run_id)
    with pytest.raises(StateConflict) as refused:
        await driver.store.control.delete_conversation((await driver.get(run_id)).conversation_id)
    assert refused.value.code == "conversation_busy"
    assert await driver.everything() == before


async def test_the_outcome_of_a_deleted_run_is_forgotten(driver: StoreDriver) -> None:
    first, lease = await driver.begin()
    conversation = lease.conversation_id
    await driver.give_up(lease)
    second, _ = await _run(driver, "two", conversation)
    await driver.store.control.delete_run(second)
    assert (await driver.store.runs.conversation(conversation)).last_outcome is None
    with pytest.raises(StateConflict) as refused:
        await driver.store.control.retry(first, Retry())
    assert refused.value.code == "conversation_moved_on"

    third, _ = await _run(driver, "three", conversation)
    await driver.store.control.delete_run(first)
    outcome = (await driver.store.runs.conversation(conversation)).last_outcome
    assert outcome is not None
    assert outcome.run_id == third


async def test_a_deleted_conversation_is_gone_with_all_its_runs(driver: StoreDriver, redis: Any) -> None:
    await _run(driver, "other")
    kept = await driver.everything()
    first, conversation = await _run(driver, "one")
    second, _ = await _run(driver, "two", conversation)
    cancelled = await driver.submit(conversation_id=conversation, start_after=datetime.now(UTC) + timedelta(hours=1))
    await driver.store.runs.cancel(cancelled.run_id)
    await driver.store.control.delete_conversation(conversation)

    for run_id in (first, second, cancelled.run_id):
        with pytest.raises(UnknownRun):
            await driver.get(run_id)
    assert await driver.everything() == kept
    for again in (conversation, new_conversation_id(1), "nonsense"):
        with pytest.raises(UnknownConversation):
            await driver.store.control.delete_conversation(again)
    with pytest.raises(UnknownConversation):
        await driver.submit(conversation_id=conversation)


async def test_an_empty_conversation_and_one_with_deleted_runs(driver: StoreDriver, redis: Any) -> None:
    empty, _ = await driver.store.conversations.begin(NewConversation())
    await driver.store.control.delete_conversation(empty.id)
    run_id, conversation = await _run(driver, "one")
    await driver.store.control.delete_run(run_id)
    await driver.store.control.delete_conversation(conversation)
    assert await driver.everything() == {}


async def test_an_answer_that_got_lost(driver: StoreDriver) -> None:
    run_id, conversation = await _run(driver, "one")
    with driver.answers_get_lost():
        await driver.store.control.delete_run(run_id)
        await driver.store.control.delete_conversation(conversation)
    with pytest.raises(UnknownConversation):
        await driver.store.runs.conversation(conversation)


async def test_a_run_that_outlived_its_conversation(driver: StoreDriver, redis: Any) -> None:
    """Both expire at about the same time; in any order."""
    run_id, conversation = await _run(driver, "one")
    await redis.delete(keys.conversation(conversation), keys.log(conversation))
    await driver.store.control.delete_run(run_id)
    await redis.zadd(keys.expiring("00"), {conversation: 1})
    assert await driver.store.due.forget_conversations() == 1
    assert await driver.everything() == {}
