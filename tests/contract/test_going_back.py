"""Going back to a place in a log, and beginning another conversation with it: whole turns, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import IdempotencyMismatch, StateConflict, UnknownConversation
from palaver.schemas.conversation import Fork
from palaver.schemas.models import AgentSpec, Message, Retry
from palaver.steps.verdicts import Condensed, Finish
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import AGENT, StoreDriver
from tests.contract.test_appending import answer_all


async def two_turns(driver: StoreDriver) -> tuple[str, list[int]]:
    """A conversation, and the ends of its two runs, each of which has called a tool."""
    conversation, ends = None, []
    for text in ("first", "second"):
        _, lease = await driver.begin(input=text, conversation_id=conversation)
        (delivery,) = await driver.ask(lease, "c1")
        (delivery,) = (await driver.answer(await driver.claim(delivery))).deliveries
        lease = await driver.claim(delivery)
        await driver.finish(lease, text=f"{text} done")
        conversation = lease.conversation_id
        ends.append((await driver.store.runs.conversation(conversation)).entries)
    return str(conversation), ends


async def told(driver: StoreDriver, conversation_id: str, text: str = "now") -> list[str]:
    """What the next run's model is told, by a worker that knows nothing and by one that knew all."""
    known = (await driver.store.runs.conversation(conversation_id)).entries
    _, lease = await driver.begin(input=text, conversation_id=conversation_id)
    said = driver.said(lease)
    again = await driver.anew(lease)
    assert driver.said(again) == said
    assert known <= lease.log.position
    await driver.finish(lease)
    return said


async def position_of(driver: StoreDriver, conversation_id: str, text: str) -> int:
    """Where a message is."""
    entries = await driver.store.runs.entries(conversation_id, limit=1000)
    return next(each.position for each in entries if each.data.get("message", {}).get("content") == text)


async def test_what_follows_is_withdrawn(driver: StoreDriver) -> None:
    conversation, (first, second) = await two_turns(driver)
    with driver.answers_get_lost():
        assert not (await driver.store.history.withdraw(conversation, first)).replayed
    entries = await driver.store.runs.entries(conversation, limit=1000)
    assert [each.withdrawn for each in entries] == [*[False] * first, *[True] * (second - first), False]
    assert (entries[-1].type, entries[-1].data, entries[-1].run_id) == (
        "messages.withdrawn", {"first": first + 1, "last": second}, "",
    )  # fmt: skip
    found = await driver.store.runs.conversation(conversation)
    assert (found.status, found.last_outcome) == ("idle", None)
    assert await told(driver, conversation) == ["first", "let me see", "42", "first done", "now"]


async def test_a_worker_that_knows_it_all_is_told_anew(driver: StoreDriver) -> None:
    conversation, (first, second) = await two_turns(driver)
    await driver.store.history.withdraw(conversation, first)
    submitted = await driver.submit("now", conversation_id=conversation)
    lease = await driver.claim(submitted.deliveries[0], known=second)
    assert lease.log.rebuilt
    assert driver.said(lease) == ["first", "let me see", "42", "first done", "now"]


async def test_to_the_beginning_and_to_the_end(driver: StoreDriver) -> None:
    conversation, (_, second) = await two_turns(driver)
    await driver.store.history.withdraw(conversation, second)
    assert (await driver.store.runs.conversation(conversation)).entries == second
    await driver.store.history.withdraw(conversation, 0)
    with pytest.raises(StateConflict) as refused:
        await answer_all(driver, conversation)
    assert refused.value.code == "nothing_to_answer"
    assert await told(driver, conversation) == ["now"]


async def test_behind_the_words_of_the_user_there_is_something_to_answer(driver: StoreDriver) -> None:
    conversation, _ = await two_turns(driver)
    await driver.store.history.withdraw(conversation, await position_of(driver, conversation, "second"))
    lease = await driver.claim((await answer_all(driver, conversation)).deliveries[0])
    assert driver.said(lease) == ["first", "let me see", "42", "first done", "second"]


async def test_only_whole_turns_and_places_that_there_are(driver: StoreDriver) -> None:
    conversation, (first, second) = await two_turns(driver)
    within = await position_of(driver, conversation, "let me see")
    for after in (within, second + 1):
        with pytest.raises(StateConflict) as refused:
            await driver.store.history.withdraw(conversation, after)
        assert refused.value.code == "unknown_position", after
        with pytest.raises(StateConflict):
            await driver.store.history.fork(conversation, Fork(through=after))
    await driver.store.history.withdraw(conversation, first)
    with pytest.raises(StateConflict) as refused:
        await driver.store.history.withdraw(conversation, first + 1)
    assert (refused.value.code, "withdrawn" in str(refused.value)) == ("unknown_position", True)


async def test_not_while_a_run_is_active(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    with pytest.raises(StateConflict) as refused:
        await driver.store.history.withdraw(lease.conversation_id, 0)
    assert (refused.value.code, refused.value.run_id) == ("conversation_busy", run_id)
    with pytest.raises(UnknownConversation):
        await driver.store.history.withdraw("conv_00" + "0" * 26, 0)


async def test_a_run_behind_the_place_is_not_gone_on_with(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.give_up(lease)
    await driver.store.history.withdraw(lease.conversation_id, 0)
    with pytest.raises(StateConflict) as refused:
        await driver.store.control.retry(run_id, Retry())
    assert refused.value.code == "conversation_moved_on"
    forked = await driver.store.control.retry(run_id, Retry(from_step=1))
    assert driver.said(await driver.claim(forked.deliveries[0])) == ["hello"]


async def test_a_summary_behind_the_place_is_forgotten(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease, text="one")
    before = (await driver.store.runs.conversation(lease.conversation_id)).entries
    _, lease = await driver.begin(input="two", conversation_id=lease.conversation_id)
    note = Condensed("so far", before)
    answered = Finish(Message(role="assistant", content="2"), StopReason.END_TURN, notes=(note,))
    await driver.store.steps.settle(lease, answered)
    await driver.store.history.withdraw(lease.conversation_id, before)
    assert await told(driver, lease.conversation_id) == ["hello", "one", "now"]


async def test_the_same_key_withdraws_once(driver: StoreDriver) -> None:
    conversation, (first, _) = await two_turns(driver)
    for replayed in (False, True):
        withdrawn = await driver.store.history.withdraw(conversation, first, idempotency_key="k")
        assert withdrawn.replayed is replayed
    with pytest.raises(IdempotencyMismatch):
        await driver.store.history.withdraw(conversation, 0, idempotency_key="k")


async def test_a_fork_goes_its_own_way(driver: StoreDriver) -> None:
    conversation, (first, _) = await two_turns(driver)
    with driver.answers_get_lost():
        forked, replayed = await driver.store.history.fork(conversation, Fork(through=first, title="other"))
    assert (replayed, forked.forked_from, forked.forked_through, forked.title) == (False, conversation, first, "other")
    assert (forked.agent, forked.status, forked.entries) == (AGENT, "idle", first)
    assert await told(driver, forked.id) == ["first", "let me see", "42", "first done", "now"]
    assert len(await told(driver, conversation)) == 9


async def test_a_fork_of_what_goes_on_has_whole_turns(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    (delivery, _) = await driver.ask(lease, "c1", "c2")
    await driver.answer(await driver.claim(delivery))
    forked, _ = await driver.store.history.fork(lease.conversation_id, Fork(agent=AgentSpec(model="fake/other")))
    assert forked.agent is not None
    assert forked.agent.model == "fake/other"
    lease = await driver.claim((await answer_all(driver, forked.id, agent=None)).deliveries[0])
    assert driver.said(lease) == ["hello"]


async def test_a_fork_leaves_withdrawn_what_was(driver: StoreDriver) -> None:
    conversation, (first, _) = await two_turns(driver)
    await driver.store.history.withdraw(conversation, first)
    forked, _ = await driver.store.history.fork(conversation, Fork())
    assert await told(driver, forked.id) == ["first", "let me see", "42", "first done", "now"]


async def test_a_fork_is_made_once(driver: StoreDriver, redis: Any) -> None:
    conversation, _ = await two_turns(driver)
    target = driver.store.runs.new_conversation("00")
    first, replayed = await driver.store.history.fork(conversation, Fork(), target, idempotency_key="k")
    assert (first.id, replayed) == (target, False)
    for chosen in (target, None):
        again, replayed = await driver.store.history.fork(conversation, Fork(), chosen, idempotency_key="k")
        assert (again, replayed) == (first, True)
    again, replayed = await driver.store.history.fork(conversation, Fork(), target)
    assert (again, replayed) == (first, True)
    with pytest.raises(IdempotencyMismatch):
        await driver.store.history.fork(conversation, Fork(title="no"), idempotency_key="k")
    other, _ = await two_turns(driver)
    with pytest.raises(StateConflict) as refused:
        await driver.store.history.fork(other, Fork(), target)
    assert refused.value.code == "conversation_busy"
    assert await redis.ttl(keys.conversation(target)) > 600
    assert len(await redis.keys("*:conv:*")) == 3


async def test_far_behind_the_last_message_nobody_looks(driver: StoreDriver, redis: Any) -> None:
    """As after a thousand runs that were queued and cancelled."""
    run_id, _ = await driver.turn("c1")
    conversation = (await driver.get(run_id)).conversation_id
    entries = (await driver.store.runs.conversation(conversation)).entries
    fields = {"type": "run.created", "at": 1, "run": "other", "seq": 1, "data": "{}"}
    pipeline = redis.pipeline(transaction=False)
    for position in range(entries + 1, entries + 2201):
        pipeline.xadd(keys.log(conversation), fields, id=f"{position}-0")
    pipeline.hset(keys.conversation(conversation), "entries", entries + 2200)
    await pipeline.execute()
    for after in (entries + 2200, None):
        with pytest.raises(StateConflict, match="too far"):
            await driver.store.history.fork(conversation, Fork(through=after))
    with pytest.raises(StateConflict, match="within a turn"):
        await driver.store.history.fork(conversation, Fork(through=entries + 100))
