"""What watchers see."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

import pytest
from redis.exceptions import BusyLoadingError

from palaver.errors import UnknownRun
from palaver.steps.leases import Delta, Lease
from palaver.store import Store
from palaver.store.reading.events import JoinedDeltas, StoredEvent
from palaver.store.reading.feeds import Feeds
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.vocabulary.ids import new_run_id
from tests.contract.rewinding import rewind, snapshot
from tests.contract.store_driver import StoreDriver
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import PATIENCE, aeventually


async def _say(driver: StoreDriver, lease: Lease, *texts: str) -> None:
    await driver.store.steps.write_deltas([Delta(lease, text) for text in texts])


_COUNTED = "".join(map(str, range(60)))


def _as_many(events: list[StoredEvent], number: int) -> bool:
    return len(events) == number


async def _watch(
    store: Store, run_id: str, into: list[StoredEvent], after: int = 0, seen: datetime | None = None
) -> None:
    async for event in store.feeds.watch(run_id, after=after, seen=seen):
        if event is not None:
            into += [event]


def _numbers(events: Sequence[StoredEvent]) -> list[int]:
    return [event.seq for event in events]


def _covered(events: Sequence[StoredEvent]) -> list[int]:
    """The numbers of all events that these stand for."""
    return [number for event in events for number in range(event.begins, event.seq + 1)]


async def test_sequence_numbers_have_no_gaps(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await _say(driver, lease, "a", "b")
    await driver.finish(lease)
    run = await driver.get(run_id)

    events = await driver.events(run_id)
    assert _numbers(events) == list(range(1, run.last_event_id + 1))
    assert _numbers(await driver.store.feeds.page(run_id, after=3, limit=2)) == [4, 5]
    assert await driver.store.feeds.page(run_id, after=run.last_event_id) == []


async def test_an_expired_feed_is_told_from_the_log(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    await _say(driver, lease, "a")
    await driver.finish(lease, text="a")
    shown = {event.seq: event for event in await driver.events(run_id)}
    await redis.delete(keys.feed(run_id))

    told = await driver.events(run_id)
    assert [event.type for event in told] == [
        "run.created", "message.created", "run.started", "message.delta", "message.created", "run.finished",
    ]  # fmt: skip
    assert all(shown[event.seq].data == event.data for event in told)
    assert _numbers(await driver.store.feeds.page(run_id, after=2, limit=2)) == _numbers(told[2:4])
    watched: list[StoredEvent] = []
    await asyncio.wait_for(_watch(driver.store, run_id, watched), PATIENCE)
    assert watched == told


async def test_a_trimmed_feed_is_completed_from_the_log(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    await _say(driver, lease, "a", "b", "c")
    await redis.xtrim(keys.feed(run_id), minid="6-0", approximate=False)

    events = await driver.events(run_id)
    assert _numbers(events) == [1, 2, 3, 6, 7]
    assert _numbers(await driver.store.feeds.page(run_id, limit=4)) == [1, 2, 3, 6]
    assert _numbers(await driver.store.feeds.page(run_id, after=3)) == [6, 7]
    watched: list[StoredEvent] = []
    watching = asyncio.create_task(_watch(driver.store, run_id, watched))
    await driver.finish(lease)
    await asyncio.wait_for(watching, PATIENCE)
    assert _numbers(watched) == [1, 2, 3, 6, 7, 8, 9]


async def test_what_is_written_while_a_page_is_read_is_on_the_next_one(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    xrange, last = redis.xrange, (await driver.get(run_id)).last_event_id

    async def read_then_write(*args: Any) -> Any:
        found = await xrange(*args)
        redis.xrange = xrange
        await _say(driver, lease, "a")
        await driver.finish(lease)
        return found

    redis.xrange = read_then_write
    assert await driver.store.feeds.page(run_id, after=last) == []
    assert _numbers(await driver.store.feeds.page(run_id, after=last)) == [last + 1, last + 2, last + 3]


async def test_there_is_nothing_to_see_of_no_run(driver: StoreDriver) -> None:
    for run_id in (new_run_id("00"), "nonsense"):
        with pytest.raises(UnknownRun):
            await driver.store.feeds.page(run_id)
        with pytest.raises(UnknownRun):
            await anext(aiter(driver.store.feeds.watch(run_id)))


async def test_watching_what_has_ended_ends(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.finish(lease)
    last = (await driver.get(run_id)).last_event_id

    for after in (0, 3, last, last + 5):
        watched: list[StoredEvent] = []
        await asyncio.wait_for(_watch(driver.store, run_id, watched, after), PATIENCE)
        assert _numbers(watched) == list(range(after + 1, last + 1))


async def test_many_watchers_share_one_connection_and_miss_nothing(driver: StoreDriver, redis: Any) -> None:
    runs = [await driver.begin() for _ in range(3)]
    watched: list[list[StoredEvent]] = [[] for _ in range(30)]
    tasks = [asyncio.create_task(_watch(driver.store, runs[i % 3][0], watched[i])) for i in range(30)]
    for text in "abcdefgh":
        for _, lease in runs:
            await _say(driver, lease, text)
    # A watcher that is slow has deltas joined.
    await aeventually(lambda: all(len(_covered(events)) == 12 for events in watched))
    channels = await redis.pubsub_numsub(*(keys.feed(run_id) for run_id, _ in runs))
    assert [count for _, count in channels] == [1, 1, 1]
    for _, lease in runs:
        await driver.finish(lease)
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

    for events in watched:
        assert _covered(events) == list(range(1, 15))
    assert driver.store.feeds.watching == 0
    await aeventually(lambda: _nobody_subscribes(redis, runs[0][0]))


async def _nobody_subscribes(redis: Any, run_id: str) -> bool:
    return bool((await redis.pubsub_numsub(keys.feed(run_id)))[0][1] == 0)


async def test_events_of_any_moment_are_seen(driver: StoreDriver) -> None:
    """Watchers come while events are written: at whatever moment, each sees all of them once."""
    run_id, lease = await driver.begin()
    watched: list[list[StoredEvent]] = []
    tasks = []
    for i in range(60):
        watched.append([])
        tasks.append(asyncio.create_task(_watch(driver.store, run_id, watched[-1])))
        await _say(driver, lease, str(i))
        if i % 7 == 0:
            tasks.pop().cancel()
            watched.pop()
    await driver.finish(lease)
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

    for events in watched:
        assert _covered(events) == list(range(1, 67))
        assert "".join(event.data["text"] for event in events if event.type == "message.delta") == _COUNTED


async def test_a_watcher_that_leaves_is_forgotten(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    events = driver.store.feeds.watch(run_id)
    await anext(events)
    assert driver.store.feeds.watching == 1
    await events.aclose()
    assert driver.store.feeds.watching == 0
    await driver.finish(lease)


@pytest.mark.slow
async def test_a_slow_watcher_reads_the_feed_and_misses_nothing(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    events = driver.store.feeds.watch(run_id)
    seen = [await anext(events) for _ in range(4)]
    for _ in range(10):
        await _say(driver, lease, *"0123456789" * 6)
    await driver.finish(lease)
    seen += [event async for event in events]

    told = [event for event in seen if event]
    assert _covered(told) == list(range(1, 4 + 600 + 2 + 1))
    # Read a page at a time, which it was too slow for.
    deltas = [event for event in told if event.type == "message.delta"]
    assert len(deltas) < 10
    assert "".join(event.data["text"] for event in deltas) == "0123456789" * 60


@pytest.mark.slow
async def test_deltas_that_wait_for_a_watcher_are_one_that_can_be_resumed_from(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    events = driver.store.feeds.follow(run_id)
    told = [*await anext(events)]
    (channel,) = driver.store.feeds._watchers.values()
    (watcher,) = channel
    # Until its subscription is confirmed it reads what comes, which is not joined.
    while not isinstance(told[-1], JoinedDeltas):
        await _say(driver, lease, "so ", "on")
        # Nobody asks meanwhile.
        await aeventually(lambda: watcher.stale or len(watcher.events) == 2)
        told += await anext(events)
    one = told[-1]
    assert one.type == "message.delta"
    assert one.data == {"step": "1", "attempt": 1, "text": "so on"}
    assert one.at == (await driver.store.feeds.page(run_id))[-1].at
    assert _covered(told) == list(range(1, one.seq + 1))
    await driver.finish(lease)
    rest: list[StoredEvent] = []
    await asyncio.wait_for(_watch(driver.store, run_id, rest, one.seq), PATIENCE)
    assert _numbers(rest) == [one.seq + 1, one.seq + 2]
    await events.aclose()  # type: ignore[attr-defined]


async def test_a_delta_is_passed_on_to_who_waits_for_it_and_has_all_before_it(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    passed: list[int] = []
    batches: list[StoredEvent] = []
    takes = True

    def pass_on(event: StoredEvent) -> bool:
        if takes:
            passed.append(event.seq)
        return takes

    async def watch() -> None:
        async for events in driver.store.feeds.follow(run_id, pass_on=pass_on):
            batches.extend(events)

    watching = asyncio.create_task(watch())
    await aeventually(lambda: _as_many(batches, 4))
    (channel,) = driver.store.feeds._watchers.values()
    (watcher,) = channel
    await aeventually(lambda: watcher._passing)
    await _say(driver, lease, "a", "b")
    await aeventually(lambda: passed == [5, 6])
    takes = False
    await _say(driver, lease, "c")
    await aeventually(lambda: _as_many(batches, 5))
    takes = True
    await driver.finish(lease)
    await asyncio.wait_for(watching, PATIENCE)
    # What is no delta is never passed on, and nothing comes twice.
    assert passed == [5, 6]
    assert _numbers(batches) == [1, 2, 3, 4, 7, 8, 9]


@pytest.mark.parametrize("more", [1, 9], ids=["behind", "caught up"])
async def test_a_store_that_went_back_is_told(driver: StoreDriver, redis: Any, more: int) -> None:
    """A power cut takes the newest part of everything; who had seen it learns what was lost, and misses nothing."""
    run_id, lease = await driver.begin()
    await _say(driver, lease, "kept")
    saved = await snapshot(redis)
    await _say(driver, lease, "lost", "lost", "lost")
    last = (await driver.events(run_id))[-1]
    await rewind(redis, saved)
    await _say(driver, lease, *["new"] * more)
    watched: list[StoredEvent] = []
    watching = asyncio.create_task(_watch(driver.store, run_id, watched, last.seq, last.at))
    await aeventually(lambda: len(watched) == 1 + more)
    await driver.finish(lease)
    await asyncio.wait_for(watching, PATIENCE)

    told = watched[0]
    assert (told.run_id, told.seq, told.type, told.data) == (run_id, 5, "stream.rewound", {"first": 6, "last": 8})
    assert watched[1:] == (await driver.events(run_id))[5:]
    assert watched[-1].type == "run.finished"


class Loading:
    """A connection to a server that lets one subscribe, and cannot be read while it loads its data."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self.loading = True
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._redis, name)

    async def xrange(self, *args: Any) -> Any:
        """The answer, or that there is none yet."""
        if self.loading:
            self.refused += 1
            raise BusyLoadingError("Redis is loading the dataset in memory")
        return await self._redis.xrange(*args)


async def test_nothing_live_is_believed_until_the_feed_was_read(driver: StoreDriver, redis: Any) -> None:
    """What comes live right after a power cut may be numbered anew, and must not be taken for what comes next."""
    run_id, lease = await driver.begin()
    saved = await snapshot(redis)
    await _say(driver, lease, "lost", "lost")
    last = (await driver.events(run_id))[-1]
    await rewind(redis, saved)
    connection = Loading(redis)
    feeds = Feeds(cast(Connection, connection))
    watched: list[StoredEvent] = []

    async def watch() -> None:
        async for event in feeds.watch(run_id, after=last.seq, seen=last.at):
            watched.extend([event] if event else [])

    async def subscribed() -> bool:
        ((_, subscribers),) = await redis.pubsub_numsub(keys.feed(run_id))
        return bool(subscribers)

    watching = asyncio.create_task(watch())
    await aeventually(subscribed)
    before = connection.refused
    await aeventually(lambda: connection.refused > before)
    connection.loading = False
    await _say(driver, lease, *["new"] * 4)
    await driver.finish(lease)
    await asyncio.wait_for(watching, PATIENCE)
    await feeds.close()

    assert watched[0].type == "stream.rewound"
    assert watched[1:] == (await driver.events(run_id))[last.seq - 2 :]


class Timeless:
    """A connection to a server that goes away whenever it is first asked for the time."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._redis, name)

    async def time(self) -> Any:
        """The time, but for the first time."""
        if not self.refused:
            self.refused += 1
            raise BusyLoadingError("Redis is loading the dataset in memory")
        return await self._redis.time()


async def test_a_loss_is_told_though_the_store_goes_away_in_between(driver: StoreDriver, redis: Any) -> None:
    """The feed does not reach back to what is left of what was seen, so that nothing but the time of that tells."""
    run_id, lease = await driver.begin()
    saved = await snapshot(redis)
    await _say(driver, lease, "lost", "lost")
    last = (await driver.events(run_id))[-1]
    await rewind(redis, saved)
    await _say(driver, lease, *["new"] * 4)
    await driver.finish(lease)
    await redis.xtrim(keys.feed(run_id), minid=f"{last.seq - 1}-0", approximate=False)
    connection = Timeless(redis)
    feeds = Feeds(cast(Connection, connection))
    watching = feeds.watch(run_id, after=last.seq, seen=last.at)
    watched = [event async for event in watching if event]
    await feeds.close()

    assert connection.refused
    assert (watched[0].type, watched[0].data) == ("stream.rewound", {"first": 1, "last": last.seq})
    assert watched[1:] == await driver.events(run_id)


async def test_a_broken_subscription_loses_nothing(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    watched: list[StoredEvent] = []
    task = asyncio.create_task(_watch(driver.store, run_id, watched))
    await aeventually(lambda: len(watched) == 4)

    async def subscribers() -> list[Any]:
        return [client for client in await redis.client_list(_type="pubsub") if int(client["sub"])]

    for round_ in range(5):
        (client,) = await aeventually(subscribers)
        await redis.client_kill_filter(_id=client["id"])
        # Written while nobody listens: only the feed has it.
        await _say(driver, lease, "x")
        await aeventually(partial(_as_many, watched, 5 + round_))
    await driver.finish(lease)
    await asyncio.wait_for(task, PATIENCE)
    assert _numbers(watched) == list(range(1, 12))


class Counting:
    """A client that counts its pub/sub connections."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self.made = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._redis, name)

    def pubsub(self) -> Any:
        """One more."""
        self.made += 1
        return self._redis.pubsub()


@pytest.mark.slow
async def test_waits_one_after_the_other_share_one_connection(driver: StoreDriver, redis: Any) -> None:
    """A wait that comes between two others finds nobody there, and must not wait for a connection."""
    connection = Counting(redis)
    feeds = Feeds(cast(Connection, connection))
    for _ in range(20):
        run_id, lease = await driver.begin()
        watched: list[StoredEvent] = []

        async def watch(run_id: str = run_id, into: list[StoredEvent] = watched) -> None:
            async for event in feeds.watch(run_id):
                into += [event] if event else []

        watching = asyncio.create_task(watch())
        await aeventually(partial(_as_many, watched, 4), every=0)
        await driver.finish(lease)
        await asyncio.wait_for(watching, PATIENCE)
        await aeventually(partial(_nobody_subscribes, redis, run_id), every=0)
    await feeds.close()
    assert connection.made == 1


@pytest.mark.skipif(ON_CLUSTER, reason="counts what one server was told")
async def test_a_script_tells_of_a_feed_once_if_nobody_hears_it_and_of_all_else(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    before = await _told(driver)
    await _say(driver, lease, "a", "b", "c")
    assert await _told(driver) == before + 1
    async with driver.redis.pubsub() as hearing:
        await hearing.subscribe(keys.feed(run_id))
        await _say(driver, lease, "d", "e", "f")
        assert await _told(driver) == before + 4
        heard = [await hearing.get_message(timeout=PATIENCE) for _ in range(4)]
        assert [message["data"][-3:] for message in heard[1:]] == [b'%c"}' % letter for letter in b"def"]
    await _say(driver, lease, "g", "h")
    assert await _told(driver) == before + 5
    await driver.finish(lease)


async def _told(driver: StoreDriver) -> int:
    """How often the server was told of something."""
    return int((await driver.redis.info("commandstats"))["cmdstat_publish"]["calls"])
