"""A program that shows deltas alone shows each answer whole and once, however late it comes, and wherever it comes
back: while an answer is written, once its run has ended, and once its feed is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import pytest

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure
from palaver.schemas.conversation import Fork, NewConversation
from palaver.schemas.models import Message
from palaver.steps.leases import Lease, Shown
from palaver.steps.verdicts import Continue, Finish, GiveUp, RetryAfter
from palaver.store import Store
from palaver.store.reading.conversation_feeds import BEGINNING
from palaver.store.reading.events import StoredEvent
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import StoreDriver, calls
from tests.contract.test_conversation_feeds import Watch, has_all, say, watching
from tests.waiting import aeventually

TEXT: Final = "Good day to you"
Scene = Callable[[StoreDriver, Lease], Awaitable[None]]


def screen(events: Sequence[StoredEvent]) -> dict[tuple[str, str], str]:
    """What a program shows that reads deltas alone."""
    shown: dict[tuple[str, str], str] = {}
    for event in events:
        if event.type == "message.delta":
            of = (event.run_id, event.data["step"])
            shown[of] = shown.get(of, "") + event.data["text"]
        elif event.type == "message.discarded":
            shown.pop((event.run_id, event.data["step"]), None)
    return {of: text for of, text in shown.items() if text}


def answers(events: Sequence[StoredEvent]) -> dict[tuple[str, str], str]:
    """What it should."""
    return {
        (event.run_id, event.data["step"]): event.data["message"]["content"]
        for event in events
        if event.type == "message.created" and event.data["step"] and event.data["message"]["content"]
    }


async def _answer(driver: StoreDriver, lease: Lease, *, partial: bool = False, shown: Shown = Shown.ALL) -> None:
    message = Message(role="assistant", content=TEXT, partial=partial)
    await driver.store.steps.settle(lease, Finish(message, StopReason.END_TURN), shown=shown)


async def completed(driver: StoreDriver, lease: Lease) -> None:
    """An answer that came in pieces."""
    await say(driver, lease, TEXT)
    await _answer(driver, lease)


async def unseen(driver: StoreDriver, lease: Lease) -> None:
    """An answer that came in one piece."""
    await _answer(driver, lease, shown=Shown.NOTHING)


async def retried(driver: StoreDriver, lease: Lease) -> None:
    """The first attempt broke off."""
    await say(driver, lease, "Goo")
    failed = RetryAfter(0.0, Failure.of(ErrorClass.CONNECTION))
    (step,) = (await driver.store.steps.settle(lease, failed, shown=Shown.HALF)).deliveries
    await completed(driver, await driver.claim(step))


async def failed(driver: StoreDriver, lease: Lease) -> None:
    """It broke off for good: nothing of it is kept."""
    await say(driver, lease, "Good day")
    given_up = GiveUp(Failure.of(ErrorClass.CONNECTION), StopReason.ERROR)
    await driver.store.steps.settle(lease, given_up, shown=Shown.HALF)


async def cancelled(driver: StoreDriver, lease: Lease) -> None:
    """It was stopped, and part of the answer is kept."""
    await say(driver, lease, TEXT)
    await driver.store.runs.cancel(lease.run_id)
    await _answer(driver, lease, partial=True)


async def paused_meanwhile(driver: StoreDriver, lease: Lease) -> None:
    """There are entries of the log in the middle of the answer, of this run and of another one."""
    await say(driver, lease, TEXT[:4])
    await driver.submit(conversation_id=lease.conversation_id)
    await say(driver, lease, TEXT[4:8])
    await driver.store.runs.cancel(lease.run_id, mode="graceful")
    await say(driver, lease, TEXT[8:])
    await _answer(driver, lease)


async def with_tools(driver: StoreDriver, lease: Lease) -> None:
    """Two answers, a call between them."""
    await say(driver, lease, "let me see")
    (step,) = (await driver.store.steps.settle(lease, calls("call_1"), shown=Shown.ALL)).deliveries
    (step,) = (await driver.answer(await driver.claim(step))).deliveries
    await completed(driver, await driver.claim(step))


SCENES: Final[Sequence[Scene]] = (completed, unseen, retried, failed, cancelled, paused_meanwhile, with_tools)


async def _play(driver: StoreDriver, scene: Scene) -> tuple[str, Watch]:
    """Play a scene behind an earlier run; the id of its run, and what was told meanwhile."""
    made, _ = await driver.store.conversations.begin(NewConversation())
    _, lease = await driver.begin(conversation_id=made.id)
    await completed(driver, lease)
    async with watching(driver.store, made.id) as watch:
        run_id, lease = await driver.begin(conversation_id=made.id)
        await aeventually(lambda: "step.started" in [event.type for event in watch.events])
        await scene(driver, lease)
        await has_all(driver.store, made.id, watch)
    return run_id, watch


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_in_a_stream_over_a_conversation(
    scene: Scene, driver: StoreDriver, redis: Any, settings: Settings
) -> None:
    run_id, live = await _play(driver, scene)
    wanted = answers(live.events)
    assert wanted
    assert screen(live.events) == wanted
    conversation = (await driver.get(run_id)).conversation_id
    for expired in (False, True):
        if expired:
            await redis.delete(keys.feed(run_id))
        other = Store(redis, settings)
        for number in range(len(live.events) + 1):
            place = live.place(number) if number else BEGINNING
            async with watching(other, conversation, place) as again:
                await has_all(other, conversation, again, place.position)
            assert screen([*live.events[:number], *again.events]) == wanted, (number, live.events[number - 1])
        await other.conversation_feeds.close()
        await other.feeds.close()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_in_the_stream_over_a_run(scene: Scene, driver: StoreDriver, redis: Any) -> None:
    run_id, _ = await _play(driver, scene)
    events = await driver.events(run_id)
    wanted = answers(events)
    assert screen(events) == wanted
    await redis.delete(keys.feed(run_id))
    lacking = []
    for number in range(len(events) + 1):
        after = events[number - 1].seq if number else 0
        rest = [event async for event in driver.store.feeds.watch(run_id, after=after) if event]
        numbers = [event.seq for event in rest]
        assert numbers == sorted(set(numbers))
        if screen([*events[:number], *rest]) != wanted:
            lacking.append(after)
    for limit in (1, 2, 3):
        paged, place = list[StoredEvent](), 0
        while page := await driver.store.feeds.page(run_id, after=place, limit=limit):
            paged += page
            place = page[-1].seq
        assert screen(paged) == wanted
    # There is no number to have those forget the rest who lack nothing but the last event before the answer.
    ends = {event.seq - 2 for event in events if event.type in ("message.created", "run.cancelling")}
    assert ends.issuperset(lacking)


async def test_a_torn_answer_is_forgotten_and_told_whole(driver: StoreDriver, redis: Any) -> None:
    made, _ = await driver.store.conversations.begin(NewConversation())
    run_id, lease = await driver.begin(conversation_id=made.id)
    await say(driver, lease, TEXT)
    await redis.xtrim(keys.feed(run_id), minid="9-0", approximate=False)
    async with watching(driver.store, made.id) as watch:
        await aeventually(lambda: watch.text)
        await _answer(driver, lease)
        await has_all(driver.store, made.id, watch)
    kinds = [event.type for event in watch.events]
    assert "stream.gap" in kinds
    assert kinds[-4:] == ["message.discarded", "message.delta", "message.created", "run.finished"]
    assert screen(watch.events) == answers(watch.events)


async def test_a_fork_has_the_answers_too(driver: StoreDriver) -> None:
    run_id, _ = await _play(driver, completed)
    conversation = (await driver.get(run_id)).conversation_id
    forked, _ = await driver.store.history.fork(conversation, Fork())
    async with watching(driver.store, forked.id) as watch:
        await has_all(driver.store, forked.id, watch)
    assert len(answers(watch.events)) == 2
    assert screen(watch.events) == answers(watch.events)


async def test_what_was_withdrawn_is_told_once(driver: StoreDriver) -> None:
    made, _ = await driver.store.conversations.begin(NewConversation())
    _, lease = await driver.begin(conversation_id=made.id)
    await say(driver, lease, TEXT)
    await driver.store.steps.settle(lease, Continue(Message(role="assistant", content=TEXT)), shown=Shown.ALL)
    await driver.store.runs.cancel(lease.run_id, mode="rollback")
    async with watching(driver.store, made.id) as watch:
        await has_all(driver.store, made.id, watch)
    assert "messages.withdrawn" in [event.type for event in watch.events]
    assert screen(watch.events) == answers(watch.events)
