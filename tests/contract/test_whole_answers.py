"""An answer that nobody saw come is told in deltas all the same: to whoever reads, however often it connects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from palaver.schemas.models import Message
from palaver.steps.leases import Lease, Shown
from palaver.steps.verdicts import Continue, Finish
from palaver.store.reading.conversation_feeds import FeedCursor
from palaver.store.reading.events import StoredEvent
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import StoreDriver
from tests.waiting import PATIENCE, aeventually

TOLD = [
    "run.created", "message.created", "run.started", "step.started", "message.delta", "message.created", "run.finished",
]  # fmt: skip


async def _answer(driver: StoreDriver, lease: Lease, text: str = "Good day.", shown: Shown = Shown.NOTHING) -> None:
    verdict = Finish(Message(role="assistant", content=text), StopReason.END_TURN)
    await driver.store.steps.settle(lease, verdict, shown=shown)


def _texts(events: Sequence[StoredEvent]) -> list[str]:
    return [event.data["text"] for event in events if event.type == "message.delta"]


async def test_its_text_comes_as_a_delta_before_the_message(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await _answer(driver, lease)
    events = await driver.events(run_id)
    assert [event.type for event in events] == TOLD
    assert [event.seq for event in events] == list(range(1, 8))
    assert events[4].data == {"step": "1", "attempt": 1, "text": "Good day."}
    assert "deltas" not in events[5].data
    assert (await driver.get(run_id)).last_event_id == 7


async def test_none_of_what_was_shown_comes_again(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await _answer(driver, lease, shown=Shown.ALL)
    assert _texts(await driver.events(run_id)) == []


async def test_what_is_forgotten_comes_whole(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await _answer(driver, lease, shown=Shown.HALF)
    told = [event.type for event in await driver.events(run_id)]
    assert told == [*TOLD[:4], "message.discarded", *TOLD[4:]]


async def test_a_message_without_text_has_none(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.settle(lease, Continue(Message(role="assistant")), shown=Shown.NOTHING)
    assert _texts(await driver.events(run_id)) == []


async def test_a_long_one_comes_in_several(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    long = "".join(map(str, range(limit_of("delta") // 4)))
    assert len(long) > limit_of("delta")
    await _answer(driver, lease, long)
    texts = _texts(await driver.events(run_id))
    assert len(texts) > 1
    assert "".join(texts) == long
    assert max(map(len, texts)) <= limit_of("delta")


async def test_pages_and_places_between_them_are_exact(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await _answer(driver, lease)
    events = await driver.events(run_id)
    for after in range(8):
        assert list(await driver.store.feeds.page(run_id, after=after)) == events[after:]
        assert list(await driver.store.feeds.page(run_id, after=after, limit=1)) == events[after : after + 1]


async def test_whoever_watches_live_is_told_once(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    told: list[StoredEvent] = []

    async def watch() -> None:
        async for event in driver.store.feeds.watch(run_id):
            told.extend([event] if event else [])

    watching = asyncio.create_task(watch())
    await aeventually(lambda: len(told) == 4)
    await _answer(driver, lease)
    await asyncio.wait_for(watching, PATIENCE)
    assert told == await driver.events(run_id)


async def test_whoever_comes_back_between_the_two_goes_on_there(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await _answer(driver, lease)
    events = await driver.events(run_id)
    watch = driver.store.feeds.watch(run_id, after=5, seen=events[4].at)
    assert [event async for event in watch if event] == events[5:]


async def test_the_log_alone_tells_it_too(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    await _answer(driver, lease)
    events = await driver.events(run_id)
    await redis.delete(keys.feed(run_id))
    left = await driver.events(run_id)
    assert [event.type for event in left] == [*TOLD[:3], *TOLD[4:]]
    assert all(event in events for event in left)
    for number, event in enumerate(left):
        assert list(await driver.store.feeds.page(run_id, after=event.seq, limit=1)) == left[number + 1 : number + 2]


async def test_a_conversation_is_told_it_and_goes_on_between_the_two(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    run = await driver.get(run_id)
    feeds = driver.store.conversation_feeds
    told: list[Any] = []

    async def watch(place: FeedCursor) -> None:
        async with aclosing(feeds.follow(run.conversation_id, place)) as batches:
            async for events in batches:
                told.extend(events)
                if events and events[-1].type == "run.finished":
                    return

    watching = asyncio.create_task(watch(FeedCursor()))
    await aeventually(lambda: "step.started" in [event.type for event in told])
    await _answer(driver, lease)
    await asyncio.wait_for(watching, PATIENCE)
    assert [event.type for event in told] == TOLD
    delta, created = told[4:6]
    assert delta.position == created.position - 1
    told.clear()
    await asyncio.wait_for(watch(FeedCursor(delta.position, delta.seq)), PATIENCE)
    assert [event.type for event in told] == TOLD[5:]
