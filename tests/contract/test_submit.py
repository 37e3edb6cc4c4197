"""Taking runs on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.errors import IdempotencyMismatch, StateConflict, TimePassed, UnknownConversation
from palaver.schemas.conversation import ConversationPatch, NewConversation
from palaver.schemas.models import Budget, Message
from palaver.store.redis import keys
from palaver.vocabulary.ids import new_conversation_id
from palaver.vocabulary.lifecycle import RunStatus, WaitReason
from tests.contract.store_driver import AGENT, StoreDriver


async def test_a_run_is_durable_and_due_before_submit_answers(driver: StoreDriver) -> None:
    submitted = await driver.submit()

    (delivery,) = submitted.deliveries
    assert (delivery.queue, delivery.step, delivery.number) == ("model", "1", 1)
    assert delivery.task_id == f"{submitted.run_id}:1:1"
    run = await driver.get(submitted.run_id)
    assert (run.status, run.step, run.attempt, run.agent) == (RunStatus.QUEUED, 1, 1, AGENT)
    assert await driver.kinds(submitted.run_id) == ["run.created", "message.created"]


async def test_the_run_that_comes_with_the_answer_is_what_reading_shows(driver: StoreDriver) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    budget, kept = Budget(tokens=7), {"tags": ("a",), "metadata": {"k": "v"}}
    for more in ({}, {"start_after": later}, {"deadline": later, "start_by": later, "budget": budget, **kept}):
        submitted = await driver.submit(show=True, **more)
        assert submitted.run is not None
        assert submitted.run == await driver.get(submitted.run_id)
    assert (await driver.submit()).run is None


async def test_of_a_run_that_says_too_little_by_itself_none_comes_with_the_answer(driver: StoreDriver) -> None:
    ahead = await driver.submit(show=True, idempotency_key="k")
    conversation_id = ahead.deliveries[0].conversation_id
    # Who is ahead of it, the conversation says.
    assert (await driver.submit(show=True, conversation_id=conversation_id)).run is None
    assert (await driver.submit(show=True, conversation_id=conversation_id, on_conflict="steer")).run is None
    assert (await driver.submit(show=True, idempotency_key="k")).run is None


async def test_the_default_deadline_counts_from_the_start(driver: StoreDriver) -> None:
    later = datetime.now(UTC) + timedelta(days=10)
    run = await driver.get((await driver.submit(start_after=later)).run_id)

    assert run.times.start_after is not None
    assert run.times.deadline == run.times.start_after + timedelta(days=1)


async def test_the_same_key_and_body_is_the_same_run(driver: StoreDriver) -> None:
    first = await driver.submit(idempotency_key="k")
    again = await driver.submit(idempotency_key="k")

    assert (again.run_id, again.replayed, again.deliveries) == (first.run_id, True, ())
    assert not first.replayed


async def test_the_same_key_with_another_body_is_refused(driver: StoreDriver) -> None:
    await driver.submit(idempotency_key="k")

    with pytest.raises(IdempotencyMismatch):
        await driver.submit("something else", idempotency_key="k")


@pytest.mark.parametrize("name", ["start_by", "deadline"])
async def test_a_time_that_has_passed_by_the_stores_clock_is_refused(
    driver: StoreDriver, redis: Any, name: str
) -> None:
    now = await driver.store.runs.now()
    times: dict[str, Any] = {name: now}
    with pytest.raises(TimePassed) as refused:
        await driver.submit(**times)
    assert refused.value.name == name
    assert not await redis.keys("*")


async def test_a_time_that_has_passed_since_does_not_hide_the_run_of_a_key(driver: StoreDriver) -> None:
    """Whoever lost the answer asks again for as long as it takes, with the same body."""
    soon = await driver.store.runs.now() + timedelta(seconds=0.5)
    first = await driver.submit(deadline=soon, idempotency_key="k")
    await driver.behind(soon)
    again = await driver.submit(deadline=soon, idempotency_key="k")
    assert (again.run_id, again.replayed) == (first.run_id, True)


async def test_a_submit_whose_answer_was_lost_is_told_again(driver: StoreDriver, redis: Any) -> None:
    said: list[tuple[Any, ...]] = []
    evalsha = redis.evalsha

    async def lose_the_answer(*args: Any) -> Any:
        said.append(args)
        await evalsha(*args)
        return await evalsha(*args)

    redis.evalsha = lose_the_answer
    submitted = await driver.submit(idempotency_key="k")
    redis.evalsha = evalsha

    assert len(said) == 1
    assert not submitted.replayed
    assert [each.step for each in submitted.deliveries] == ["1"]
    assert await driver.kinds(submitted.run_id) == ["run.created", "message.created"]


async def test_messages_enter_the_log_in_order(driver: StoreDriver) -> None:
    messages = (Message(role="user", content="a"), Message(role="assistant", content="b"))
    _, lease = await driver.begin(input=(*messages, Message(role="user", content="c")))

    assert [entry.message.content for entry in lease.log.entries] == ["a", "b", "c"]


async def test_a_conversation_goes_on_with_its_own_agent(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.finish(lease)

    second = await driver.submit("and?", conversation_id=lease.conversation_id, agent=None)

    assert (await driver.get(second.run_id)).agent == AGENT
    lease = await driver.claim(second.deliveries[0])
    assert [entry.message.content for entry in lease.log.entries] == ["hello", "bye", "and?"]
    conversation = await driver.store.runs.conversation(lease.conversation_id)
    assert conversation.active_run == second.run_id
    assert conversation.last_outcome is not None
    assert conversation.last_outcome.run_id == run_id


async def test_a_run_that_was_judged_by_another_agent_is_refused(driver: StoreDriver) -> None:
    made = (await driver.store.conversations.begin(NewConversation()))[0].id
    asked: dict[str, Any] = {"conversation_id": made, "agent": None}
    seen = (await driver.store.runs.agent_of(made)).text
    for text in ("one", "two"):
        agent = AGENT.model_copy(update={"instructions": text})
        await driver.store.conversations.change(made, ConversationPatch(agent=agent))
        with pytest.raises(StateConflict) as refused:
            await driver.submit(**asked, seen_agent=seen)
        assert refused.value.code == "conversation_changed"
        seen = (await driver.store.runs.agent_of(made)).text
    submitted = await driver.submit(**asked, seen_agent=seen, idempotency_key="k")
    assert (await driver.get(submitted.run_id)).agent.instructions == "two"
    await driver.store.conversations.change(made, ConversationPatch(agent=AGENT))
    again = await driver.submit(**asked, seen_agent=seen, idempotency_key="k")
    assert (again.run_id, again.replayed) == (submitted.run_id, True)


async def test_refusals_leave_nothing_behind(driver: StoreDriver, redis: Any) -> None:
    with pytest.raises(UnknownConversation):
        await driver.submit(conversation_id=new_conversation_id(1))
    with pytest.raises(UnknownConversation):
        await driver.submit(conversation_id="../etc/passwd")
    with pytest.raises(StateConflict) as refused:
        await driver.submit(agent=None)

    assert refused.value.code == "no_agent"
    assert await redis.keys("*") == []


async def test_the_first_run_of_a_named_conversation_begins_it(driver: StoreDriver) -> None:
    named = new_conversation_id(1)

    first, second = [
        await driver.submit(words, conversation_id=named, begins=True, idempotency_key=words)
        for words in ("hello", "and?")
    ]
    again = await driver.submit("hello", conversation_id=named, begins=True, idempotency_key="hello")

    assert (await driver.store.runs.conversation(named)).active_run == first.run_id
    assert (await driver.get(second.run_id)).conversation_id == named
    assert (again.run_id, again.replayed) == (first.run_id, True)
    lease = await driver.claim(first.deliveries[0])
    assert [entry.message.content for entry in lease.log.entries] == ["hello"]


async def test_a_named_conversation_needs_an_agent_and_something_to_answer(driver: StoreDriver, redis: Any) -> None:
    for code, agent, words in (("no_agent", None, "hello"), ("nothing_to_answer", AGENT, ())):
        with pytest.raises(StateConflict) as refused:
            await driver.submit(words, agent=agent, conversation_id=new_conversation_id(1), begins=True)
        assert refused.value.code == code

    assert await redis.keys("*") == []


async def test_a_busy_conversation_may_refuse(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()

    with pytest.raises(StateConflict) as refused:
        await driver.submit(conversation_id=lease.conversation_id, on_conflict="reject")

    assert (refused.value.code, refused.value.run_id) == ("conversation_busy", run_id)


async def test_an_empty_conversation_waits_for_its_first_run(driver: StoreDriver, redis: Any) -> None:
    conversation, _ = await driver.store.conversations.begin(NewConversation(agent=AGENT))
    assert await redis.ttl(keys.conversation(conversation.id)) > 0

    submitted = await driver.submit(conversation_id=conversation.id, agent=None)

    assert (await driver.get(submitted.run_id)).agent == AGENT
    assert await redis.ttl(keys.conversation(conversation.id)) == -1


async def test_keys_live_as_long_as_their_run_and_then_the_retention(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    names = [keys.run(run_id), keys.conversation(lease.conversation_id), keys.log(lease.conversation_id)]
    assert [await redis.ttl(name) for name in names] == [-1, -1, -1]

    await driver.finish(lease)
    for name in names:
        assert 7 * 86400 - 5 < await redis.ttl(name) <= 7 * 86400
    assert 3595 < await redis.ttl(keys.feed(run_id)) <= 3600
    assert not await redis.exists(keys.steps(run_id))

    await driver.submit(conversation_id=lease.conversation_id)
    assert [await redis.ttl(name) for name in names[1:]] == [-1, -1]
    assert await redis.ttl(names[0]) > 0


async def test_a_scheduled_run_starts_at_its_time(driver: StoreDriver) -> None:
    submitted = await driver.submit(start_after=datetime.now(UTC) + timedelta(hours=1))
    run = await driver.get(submitted.run_id)
    assert submitted.deliveries == ()
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.until) == (WaitReason.SCHEDULED, run.times.start_after)

    (early,) = await driver.sweep(submitted.run_id, "start")
    assert early.deliveries == ()

    (started,) = await driver.hasten(submitted.run_id, "start")
    assert [each.step for each in started.deliveries] == ["1"]
    assert (await driver.get(submitted.run_id)).waiting is None
    (again,) = await driver.sweep(submitted.run_id, "start")
    assert again.deliveries == ()


async def test_a_scheduled_run_keeps_its_conversation(driver: StoreDriver, redis: Any) -> None:
    _, lease = await driver.begin()
    later = await driver.submit(
        conversation_id=lease.conversation_id, start_after=datetime.now(UTC) + timedelta(days=30)
    )
    await driver.finish(lease)
    assert await redis.ttl(keys.conversation(lease.conversation_id)) == -1

    await driver.store.runs.cancel(later.run_id)
    assert await redis.ttl(keys.conversation(lease.conversation_id)) > 0


async def test_a_scheduled_run_queues_if_its_conversation_is_busy(driver: StoreDriver) -> None:
    first, lease = await driver.begin()
    second = await driver.submit(
        conversation_id=lease.conversation_id, start_after=datetime.now(UTC) + timedelta(hours=1)
    )

    (started,) = await driver.hasten(second.run_id, "start")
    assert started.deliveries == ()
    waiting = (await driver.get(second.run_id)).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.run_id) == (WaitReason.CONVERSATION_BUSY, first)

    assert (await driver.finish(lease)).next_run == second.run_id
