"""A stream over a conversation: what is kept exactly once and in order, over all runs, connections and processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.errors import UnknownConversation
from palaver.events import EventKind
from palaver.processes.tasks import end
from palaver.schemas.conversation import ConversationPatch, NewConversation
from palaver.schemas.models import Message
from palaver.steps.leases import Delta, Lease
from palaver.store import Store
from palaver.store.reading.conversation_feeds import BEGINNING, ConversationFeeds, FeedCursor
from palaver.store.reading.events import LogEntry, PlacedEvent
from palaver.store.reading.reading import Reading
from palaver.store.redis import keys
from palaver.store.redis.capacity import Capacity
from palaver.store.scripting.scripts import Scripts
from palaver.vocabulary.ids import new_conversation_id
from palaver.vocabulary.limits import limit_of
from tests.contract.rewinding import rewind, snapshot
from tests.contract.store_driver import StoreDriver
from tests.waiting import aeventually

DURABLE = {kind.value for kind in EventKind if kind.durable}
WORDS = (Message(role="user", content="by the way"),)


class Watch:
    """What somebody is told."""

    def __init__(self) -> None:
        self.events: list[PlacedEvent] = []
        self.over = False

    @property
    def kept(self) -> list[tuple[int, str, str]]:
        """Position, type and run of what is kept."""
        return [(each.position, each.type, each.run_id) for each in self.events if each.type in DURABLE]

    @property
    def text(self) -> str:
        """What deltas there were."""
        return "".join(each.data["text"] for each in self.events if each.type == "message.delta")

    def place(self, number: int) -> FeedCursor:
        """Where somebody is who was told so many."""
        if number == 0:
            return BEGINNING
        last = self.events[number - 1]
        return FeedCursor(last.position, last.beside if last.type in DURABLE else last.seq)


@asynccontextmanager
async def watching(store: Store, conversation_id: str, after: FeedCursor = BEGINNING) -> AsyncIterator[Watch]:
    """Somebody who watches meanwhile."""
    watch = Watch()

    async def follow() -> None:
        async with aclosing(store.conversation_feeds.follow(conversation_id, after)) as batches:
            async for batch in batches:
                watch.events += batch
        watch.over = True

    task = asyncio.create_task(follow())
    try:
        yield watch
        if task.done():
            await task
    finally:
        await end(task)


async def logged(store: Store, conversation_id: str) -> list[tuple[int, str, str]]:
    """What the log has."""
    entries = await store.runs.entries(conversation_id, limit=10_000)
    return [(each.position, each.type, each.run_id) for each in entries]


async def has_all(store: Store, conversation_id: str, watch: Watch, after: int = 0) -> None:
    """Wait until it was told what the log has behind a position: that, and nothing else."""
    expected = [each for each in await logged(store, conversation_id) if each[0] > after]
    await aeventually(lambda: len(watch.kept) >= len(expected))
    assert watch.kept == expected


async def has_text(watch: Watch, text: str) -> None:
    """Wait for these deltas."""
    await aeventually(lambda: watch.text == text)


async def has_events(watch: Watch, expected: Sequence[PlacedEvent]) -> None:
    """Wait for these, and see that there is nothing else."""
    await aeventually(lambda: len(watch.events) >= len(expected))
    assert watch.events == list(expected)


async def say(driver: StoreDriver, lease: Lease, text: str) -> None:
    """Deltas."""
    for letter in text:
        await driver.store.steps.write_deltas([Delta(lease, letter)])


async def begin(driver: StoreDriver) -> str:
    """The id of an empty conversation."""
    made, _ = await driver.store.conversations.begin(NewConversation())
    return made.id


def check_order(events: Sequence[PlacedEvent]) -> None:
    """Positions never go back, and neither do the numbers within a run."""
    assert [each.position for each in events] == sorted(each.position for each in events)
    for run_id in {each.run_id for each in events} - {""}:
        numbers = [each.seq for each in events if each.run_id == run_id]
        assert numbers == sorted(set(numbers)), run_id


async def test_it_goes_on_over_all_runs_and_between_them(driver: StoreDriver) -> None:
    store, conversation = driver.store, await begin(driver)
    async with watching(store, conversation) as watch:
        for number in range(3):
            _, lease = await driver.begin(conversation_id=conversation)
            await say(driver, lease, "abc")
            # Who looks only once the run is over is told its answer, and not how it came.
            await has_text(watch, "abc" * (number + 1))
            await driver.finish(lease, text="abc")
            await has_all(store, conversation, watch)
            await store.history.append(conversation, WORDS)
            await has_all(store, conversation, watch)
        check_order(watch.events)
        assert not watch.over
        assert store.feeds.watching == 1


async def test_deltas_come_between_what_is_kept_before_and_after_them(driver: StoreDriver) -> None:
    conversation = await begin(driver)
    _, lease = await driver.begin(conversation_id=conversation)
    await say(driver, lease, "hello")
    async with watching(driver.store, conversation) as watch:
        await aeventually(lambda: watch.text == "hello")
        await driver.finish(lease, text="hello")
        await has_all(driver.store, conversation, watch)
    types = [each.type for each in watch.events]
    answer = max(i for i, each in enumerate(watch.events) if each.type == "message.created")
    assert [i for i, each in enumerate(types) if each == "message.delta"] == list(range(answer - 5, answer))
    check_order(watch.events)


async def test_whoever_comes_back_anywhere_misses_nothing_and_is_told_nothing_twice(
    driver: StoreDriver, redis: Any, settings: Settings
) -> None:
    """Also in another process."""
    conversation = await begin(driver)
    _, lease = await driver.begin(conversation_id=conversation)
    await say(driver, lease, "old ")
    await driver.finish(lease, text="old ")
    await driver.store.history.append(conversation, WORDS)
    _, lease = await driver.begin(conversation_id=conversation)
    await say(driver, lease, "12")
    await driver.submit(conversation_id=conversation)
    await say(driver, lease, "34")
    async with watching(driver.store, conversation) as watch:
        await has_text(watch, "old 1234")
        await has_all(driver.store, conversation, watch)
    other = Store(redis, settings)
    for number in range(len(watch.events) + 1):
        async with watching(other, conversation, watch.place(number)) as again:
            await has_events(again, watch.events[number:])
    await other.conversation_feeds.close()
    await other.feeds.close()


async def test_a_place_in_the_deltas_of_a_run_that_is_over(driver: StoreDriver) -> None:
    """The number is not one of the run that is active now."""
    conversation = await begin(driver)
    _, lease = await driver.begin(conversation_id=conversation)
    await say(driver, lease, "many words")
    async with watching(driver.store, conversation) as watch:
        await aeventually(lambda: watch.text == "many words")
    place = watch.place(len(watch.events))
    assert place.seq
    await driver.finish(lease)
    _, lease = await driver.begin(conversation_id=conversation)
    await say(driver, lease, "few")
    async with watching(driver.store, conversation, place) as again:
        await has_all(driver.store, conversation, again, place.position)
        await aeventually(lambda: again.text == "few")
        check_order(again.events)


class CountedReading(Reading):
    """Counts what is read of logs."""

    def __init__(self, redis: Any, scripts: Scripts, settings: Settings) -> None:
        super().__init__(redis, scripts, settings, Capacity(redis, settings))
        self.bytes = 0

    async def pages(self, conversation_id: str, **how: Any) -> AsyncGenerator[Sequence[LogEntry], None]:
        async with aclosing(super().pages(conversation_id, **how)) as pages:
            async for page in pages:
                self.bytes += sum(len(each.payload) for each in page)
                yield page


async def test_a_long_run_is_not_held_in_memory(driver: StoreDriver, redis: Any, settings: Settings) -> None:
    """Its log is read as its feed is heard, however much there is."""
    conversation = await begin(driver)
    _, lease = await driver.begin(conversation_id=conversation)
    for number in range(10):
        (call,) = await driver.ask(lease, f"call_{number}")
        (step,) = (await driver.answer(await driver.claim(call), "x" * 900_000)).deliveries
        lease = await driver.claim(step)
    reading = CountedReading(redis, driver.store.scripts, settings)
    feeds = ConversationFeeds(redis, driver.store.feeds, reading)
    expected, told, passed, held = await logged(driver.store, conversation), Watch(), 0, 0
    async with aclosing(feeds.follow(conversation)) as batches:
        async for batch in batches:
            held = max(held, reading.bytes - passed)
            told.events += batch
            passed += sum(len(each.payload) for each in batch if each.type in DURABLE)
            if len(told.kept) >= len(expected):
                break
    await feeds.close()
    assert told.kept == expected
    check_order(told.events)
    assert passed > 8 * limit_of("page_bytes")
    assert held < 5 * limit_of("page_bytes")


async def test_what_happens_to_other_runs_is_told_while_one_is_active(driver: StoreDriver) -> None:
    store, conversation = driver.store, await begin(driver)
    async with watching(store, conversation) as watch:
        _, lease = await driver.begin(conversation_id=conversation)
        await has_all(store, conversation, watch)
        second = await driver.submit(conversation_id=conversation)
        await has_all(store, conversation, watch)
        third = await driver.submit(conversation_id=conversation)
        await store.runs.cancel(third.run_id)
        await has_all(store, conversation, watch)
        await say(driver, lease, "x")
        await driver.finish(lease)
        await driver.sweep(second.run_id, "start")
        await has_all(store, conversation, watch)
        await aeventually(lambda: watch.text == "x")
        check_order(watch.events)


async def test_a_deleted_conversation_is_the_last_word(driver: StoreDriver) -> None:
    store, conversation = driver.store, await begin(driver)
    _, lease = await driver.begin(conversation_id=conversation)
    await driver.finish(lease)
    async with watching(store, conversation) as watch:
        await has_all(store, conversation, watch)
        await store.control.delete_conversation(conversation)
        await aeventually(lambda: watch.over)
    assert [each.type for each in watch.events][-1] == "conversation.deleted"
    assert [each.type for each in watch.events].count("conversation.deleted") == 1
    assert store.feeds.watching == 0


async def test_a_run_of_it_is_deleted_meanwhile(driver: StoreDriver) -> None:
    store, conversation = driver.store, await begin(driver)
    run_id, lease = await driver.begin(conversation_id=conversation)
    await driver.finish(lease)
    async with watching(store, conversation) as watch:
        await has_all(store, conversation, watch)
        before = list(watch.kept)
        await store.control.delete_run(run_id)
        _, lease = await driver.begin(conversation_id=conversation)
        await driver.finish(lease)
        expected = before + await logged(store, conversation)
        await aeventually(lambda: len(watch.kept) >= len(expected))
        assert watch.kept == expected
        assert "stream.rewound" not in {each.type for each in watch.events}


async def test_what_the_store_has_lost_is_told(driver: StoreDriver, redis: Any) -> None:
    """As if Redis had gone back to before the second run."""
    store, conversation = driver.store, await begin(driver)
    _, lease = await driver.begin(conversation_id=conversation)
    await driver.finish(lease)
    saved = await snapshot(redis)
    async with watching(store, conversation) as watch:
        await has_all(store, conversation, watch)
        kept = watch.events[-1].position
        await store.history.append(conversation, WORDS)
        await store.history.append(conversation, WORDS)
        await has_all(store, conversation, watch)
        told = len(watch.events)
        await rewind(redis, saved)
        await store.history.append(conversation, WORDS)
        await aeventually(lambda: len(watch.events) >= told + 2)
    rewound, word = watch.events[told:]
    assert (rewound.type, rewound.position, rewound.data) == (
        "stream.rewound", kept, {"first": kept + 1, "last": kept + 2},
    )  # fmt: skip
    assert (word.type, word.position) == ("message.created", kept + 1)


async def test_a_change_of_its_title_wakes_nobody_up_in_vain(driver: StoreDriver) -> None:
    store, conversation = driver.store, await begin(driver)
    async with watching(store, conversation) as watch:
        await aeventually(lambda: driver.is_heard(keys.log(conversation)))
        await store.conversations.change(conversation, ConversationPatch(title="x"))
        await store.history.append(conversation, WORDS)
        await has_all(store, conversation, watch)


async def test_there_is_none(store: Store) -> None:
    with pytest.raises(UnknownConversation):
        await anext(store.conversation_feeds.follow(new_conversation_id(1)))


async def test_the_newest_come_first(driver: StoreDriver) -> None:
    conversation = await begin(driver)
    for _ in range(3):
        _, lease = await driver.begin(conversation_id=conversation)
        await driver.finish(lease)
    entries = [each.position for each in await driver.store.runs.entries(conversation)]
    for after in (0, 1, 2, entries[-1], entries[-1] + 5):
        found = []
        async with aclosing(driver.store.runs.pages(conversation, after=after, newest_first=True)) as pages:
            async for page in pages:
                found += [each.position for each in page]
        assert found == [each for each in reversed(entries) if after == 0 or each < after]
