"""The user's words without a run: in the log at once, told to the next model call, once."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import IdempotencyMismatch, StateConflict, UnknownConversation
from palaver.schemas.conversation import NewConversation
from palaver.schemas.models import Message
from palaver.steps.verdicts import Finish
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import AGENT, PAUSE, StoreDriver


def words(*texts: str) -> tuple[Message, ...]:
    """Messages of the user's."""
    return tuple(Message(role="user", content=text) for text in texts)


async def said(driver: StoreDriver, conversation_id: str) -> list[tuple[str, str]]:
    """The run and the text of each message of a conversation."""
    entries = await driver.store.runs.entries(conversation_id, limit=1000)
    return [
        (entry.run_id, entry.data["message"]["content"]) for entry in entries if entry.type == "message.created"
    ]  # fmt: skip


async def answer_all(driver: StoreDriver, conversation_id: str, **more: Any) -> Any:
    """A run without words of its own."""
    return await driver.submit((), conversation_id=conversation_id, **more)


async def test_an_idle_conversation_has_them_at_once(driver: StoreDriver) -> None:
    made, _ = await driver.store.conversations.begin(NewConversation(agent=AGENT))
    with driver.answers_get_lost():
        appended = await driver.store.history.append(made.id, words("hello", "there"))
    assert (appended.run_id, appended.position, appended.replayed) == (None, 2, False)
    assert await said(driver, made.id) == [("", "hello"), ("", "there")]

    submitted = await answer_all(driver, made.id, agent=None)
    lease = await driver.claim(submitted.deliveries[0])
    assert driver.said(lease) == ["hello", "there"]
    await driver.finish(lease)


async def test_a_run_with_words_of_its_own_sees_both(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease)
    await driver.store.history.append(lease.conversation_id, words("first"))
    _, lease = await driver.begin(input="second", conversation_id=lease.conversation_id)
    assert driver.said(lease) == ["hello", "bye", "first", "second"]


async def test_a_worker_that_knows_the_conversation_is_told_them(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease)
    known = (await driver.store.runs.conversation(lease.conversation_id)).entries
    await driver.store.history.append(lease.conversation_id, words("and then?"))
    submitted = await answer_all(driver, lease.conversation_id)
    assert driver.said(await driver.claim(submitted.deliveries[0], known=known)) == ["and then?"]


async def test_an_active_run_is_steered(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    with driver.answers_get_lost():
        appended = await driver.store.history.append(lease.conversation_id, words("in metres"))
    assert (appended.run_id, appended.position) == (run_id, None)
    settled = await driver.finish(lease)
    assert driver.said(await driver.claim(settled.deliveries[0])) == ["hello", "bye", "in metres"]


@pytest.mark.parametrize("mode", ["now", "graceful", "rollback"])
async def test_behind_a_run_that_is_being_cancelled(driver: StoreDriver, mode: Any) -> None:
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id, mode=mode)
    for text in ("no, wait", "do this"):
        appended = await driver.store.history.append(lease.conversation_id, words(text))
        assert (appended.run_id, appended.position) == (run_id, None)
    waiting = await answer_all(driver, lease.conversation_id)
    assert await said(driver, lease.conversation_id) == [(run_id, "hello")]
    settled = await driver.finish(lease)
    (entered,) = await driver.sweep(str(settled.next_run), "start")
    assert settled.next_run == waiting.run_id
    before = [] if mode == "rollback" else ["hello", "bye"]
    lease = await driver.claim(entered.deliveries[0])
    assert driver.said(lease) == [*before, "no, wait", "do this"]
    run = await driver.get(run_id)
    assert (run.status, run.last_event_id) == ("cancelled", (await driver.events(run_id))[-1].seq)


async def test_a_paused_run_keeps_its_place(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    await driver.act(submitted.run_id, PAUSE)
    conversation = (await driver.get(submitted.run_id)).conversation_id
    assert (await driver.store.history.append(conversation, words("and?"))).run_id == submitted.run_id


async def test_the_same_key_appends_once(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease)
    append = driver.store.history.append
    for replayed in (False, True):
        appended = await append(lease.conversation_id, words("once"), idempotency_key="k")
        assert appended.replayed is replayed
    assert [text for _, text in await said(driver, lease.conversation_id)] == ["hello", "bye", "once"]
    with pytest.raises(IdempotencyMismatch):
        await append(lease.conversation_id, words("twice"), idempotency_key="k")
    with pytest.raises(IdempotencyMismatch):
        await driver.submit("once", conversation_id=lease.conversation_id, idempotency_key="k")


async def test_there_may_be_nothing_to_answer(driver: StoreDriver) -> None:
    made, _ = await driver.store.conversations.begin(NewConversation(agent=AGENT))
    with pytest.raises(StateConflict) as refused:
        await answer_all(driver, made.id)
    assert refused.value.code == "nothing_to_answer"
    _, lease = await driver.begin(conversation_id=made.id)
    with pytest.raises(StateConflict) as refused:
        await answer_all(driver, made.id)
    assert (refused.value.code, refused.value.run_id) == ("conversation_busy", lease.run_id)
    await driver.finish(lease)
    with pytest.raises(StateConflict) as refused:
        await answer_all(driver, made.id)
    assert refused.value.code == "nothing_to_answer"


async def test_what_was_rolled_back_is_not_to_be_answered(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease)
    rolled_back, second = await driver.begin(input="no", conversation_id=lease.conversation_id)
    await driver.store.runs.cancel(rolled_back, mode="rollback")
    await driver.finish(second)
    with pytest.raises(StateConflict) as refused:
        await answer_all(driver, lease.conversation_id)
    assert refused.value.code == "nothing_to_answer"


async def test_what_was_withdrawn_many_times_is_not_to_be_answered(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease)
    for _ in range(40):
        entries = (await driver.store.runs.conversation(lease.conversation_id)).entries
        await driver.store.history.append(lease.conversation_id, words("no"))
        await driver.store.history.withdraw(lease.conversation_id, entries)
    with pytest.raises(StateConflict) as refused:
        await answer_all(driver, lease.conversation_id)
    assert refused.value.code == "nothing_to_answer"
    for entry in (await driver.store.runs.entries(lease.conversation_id, limit=1000))[-2:]:
        assert entry.withdrawn == (entry.type == "message.created")


async def test_a_run_whose_words_are_withdrawn_before_its_turn_says_so(driver: StoreDriver) -> None:
    first, lease = await driver.begin()
    await driver.store.runs.cancel(first, mode="rollback")
    waiting = await answer_all(driver, lease.conversation_id)
    settled = await driver.finish(lease)
    assert settled.next_run == waiting.run_id
    (ended,) = await driver.sweep(waiting.run_id, "start")
    assert not ended.deliveries
    run = await driver.get(waiting.run_id)
    assert (run.status, run.stop_reason) == ("failed", "error")
    assert run.error is not None
    assert (run.error["class"], run.error["code"]) == ("invalid_request", "nothing_to_answer")
    assert "withdrawn" in run.error["message"]
    _, lease = await driver.begin(input="hello again", conversation_id=lease.conversation_id)
    assert driver.said(lease) == ["hello again"]


async def test_an_answer_that_was_cut_off_goes_on(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id)
    cut = Message(role="assistant", content="Once upon", partial=True)
    await driver.store.steps.settle(lease, Finish(cut, StopReason.CANCELLED))
    lease = await driver.claim((await answer_all(driver, lease.conversation_id)).deliveries[0])
    assert driver.said(lease) == ["hello", "Once upon", "[Automatic note] Your answer was stopped here. Go on."]
    assert lease.log.entries[-1].nudge


async def test_results_of_tools_are_answered(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", approval=["p1"])
    await driver.store.runs.cancel(run_id)
    conversation = (await driver.get(run_id)).conversation_id
    lease = await driver.claim((await answer_all(driver, conversation)).deliveries[0])
    assert driver.said(lease)[-1] == "The user cancelled the request, so the tool call was denied."


async def test_there_must_be_a_conversation_with_room(driver: StoreDriver, redis: Any) -> None:
    for nowhere in ("conv_00" + "0" * 26, "nonsense"):
        with pytest.raises(UnknownConversation):
            await driver.store.history.append(nowhere, words("hello?"))
    _, lease = await driver.begin()
    await driver.finish(lease)
    entries = await redis.hget(keys.conversation(lease.conversation_id), "entries")
    await redis.hset(keys.conversation(lease.conversation_id), "entries", 100_000)
    with pytest.raises(StateConflict) as refused:
        await driver.store.history.append(lease.conversation_id, words("hello?"))
    assert refused.value.code == "conversation_full"
    await redis.hset(keys.conversation(lease.conversation_id), "entries", entries)


async def test_it_is_kept_as_long_as_one_with_a_run(driver: StoreDriver, redis: Any) -> None:
    made, _ = await driver.store.conversations.begin(NewConversation(agent=AGENT))
    await redis.expire(keys.conversation(made.id), 60)
    await driver.store.history.append(made.id, words("hello"))
    assert await redis.ttl(keys.conversation(made.id)) > 60
