"""The pub/sub connection of a process: when it is made, what it hears, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from redis.exceptions import ConnectionError

from palaver.store.reading import subscriptions
from palaver.store.reading.subscriptions import Subscriptions
from palaver.store.redis.connection import PubSubMessage
from tests.waiting import PATIENCE, aeventually


class _Commands:
    """The commands of one pub/sub connection, and what became of them."""

    def __init__(self, pubsub: Any, watched: Watched) -> None:
        self._pubsub, self._watched = pubsub, watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pubsub, name)

    async def subscribe(self, *channels: str) -> None:
        await self._watched.whole(self._pubsub.subscribe(*channels))

    async def unsubscribe(self, *channels: str) -> None:
        if not self._watched.loses_unsubscribes:
            await self._watched.whole(self._pubsub.unsubscribe(*channels))

    async def aclose(self) -> None:
        self._watched.ending += 1
        await self._watched.may_end.wait()
        await self._pubsub.aclose()


class Watched:
    """A client whose pub/sub connections are counted."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self.made = self.ending = self.cancelled = 0
        self.away = self.loses_unsubscribes = False
        self.may_end = asyncio.Event()
        self.may_end.set()

    def pubsub(self) -> _Commands:
        """Make one more."""
        self.made += 1
        return _Commands(self._redis.pubsub(), self)

    async def whole(self, command: Any) -> None:
        """Send a command, and count it if it is cancelled."""
        if self.away:
            command.close()
            raise ConnectionError("Redis is away")
        try:
            # There is always a moment in which it could be.
            await asyncio.sleep(0)
            await command
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class Heard:
    """What one process hears."""

    def __init__(self, redis: Any) -> None:
        self.redis = redis
        self.client = Watched(redis)
        self.messages: list[tuple[str, str]] = []
        self.may_hear = asyncio.Event()
        self.may_hear.set()
        self.comes_with: tuple[tuple[str, str], str] | None = None
        """A message, and the channel that somebody comes for at the moment at which it is heard."""
        self.channels = Subscriptions(self.client.pubsub, self._hear)

    async def _hear(self, message: PubSubMessage) -> None:
        said = message["type"], message["channel"].decode()
        self.messages.append(said)
        if self.comes_with is not None and self.comes_with[0] == said:
            self.channels.add(self.comes_with[1])
            self.comes_with = None
        await self.may_hear.wait()

    @property
    def in_use(self) -> int:
        """Connections that the pool has lent."""
        return len(self.redis.connection_pool._in_use_connections)

    def confirmed(self, channel: str) -> bool:
        """Tell whether the channel is heard by now."""
        return ("subscribe", channel) in self.messages

    def ended(self, count: int) -> bool:
        """Tell whether so many connections have ended, and none is left."""
        return self.client.ending == count and not self.in_use

    async def subscribed(self, channel: str) -> bool:
        """Tell whether Redis sends the channel to anybody."""
        ((_, count),) = await self.redis.pubsub_numsub(channel)
        return bool(count)

    async def hears(self, channel: str) -> None:
        """See that it is heard, from some moment on."""
        before = len(self.messages)

        async def heard() -> bool:
            await self.redis.publish(channel, "news")
            return ("message", channel) in self.messages[before:]

        await aeventually(heard)

    async def hears_no_more(self, channel: str) -> None:
        """Wait until Redis does not send it."""

        async def quiet() -> bool:
            return not await self.subscribed(channel)

        await aeventually(quiet)


@pytest.fixture
async def heard(redis: Any) -> AsyncIterator[Heard]:
    """A process that hears nothing yet."""
    heard = Heard(redis)
    yield heard
    heard.client.may_end.set()
    await heard.channels.close()


async def test_waits_one_after_the_other_have_one_connection_and_cancel_no_command(heard: Heard) -> None:
    for number in range(50):
        channel = f"run {number}"
        heard.channels.add(channel)
        await aeventually(partial(heard.confirmed, channel), every=0)
        heard.channels.discard(channel)
        await heard.hears_no_more(channel)
    assert (heard.client.made, heard.client.cancelled) == (1, 0)


async def test_very_many_come_and_go_on_one_connection(heard: Heard) -> None:
    async def one(number: int) -> None:
        channel = f"run {number}"
        heard.channels.add(channel)
        for _ in range(number % 7):
            await asyncio.sleep(0)
        if number % 100:
            heard.channels.discard(channel)

    await asyncio.gather(*(one(number) for number in range(3000)))
    for number in (0, 1500, 2900):
        await heard.hears(f"run {number}")
    for number in (1, 1501, 2999):
        await heard.hears_no_more(f"run {number}")
    assert heard.client.made == 1


async def test_without_a_channel_it_ends_after_a_while(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SPARE", 0.05)
    for made in (1, 2):
        heard.channels.add("run")
        await heard.hears("run")
        heard.channels.discard("run")
        await aeventually(partial(heard.ended, made))
    assert (heard.client.made, heard.client.cancelled) == (2, 0)


async def test_who_comes_while_it_ends_does_not_wait_for_that(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SPARE", 0.05)
    heard.client.may_end.clear()
    heard.channels.add("run")
    await heard.hears("run")
    heard.channels.discard("run")
    await aeventually(lambda: heard.client.ending)
    heard.channels.add("another")
    await heard.hears("another")
    heard.client.may_end.set()
    await heard.hears("another")
    assert heard.client.made == 2


async def test_while_redis_is_away_it_tries_again_for_those_who_are_there(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "_PAUSE", 0.01)
    heard.client.away = True
    heard.channels.add("run")
    await aeventually(lambda: heard.client.made > 3)
    heard.channels.add("another")
    heard.client.away = False
    await heard.hears("run")
    await heard.hears("another")
    # For nobody it does not.
    heard.client.away = True
    heard.channels.discard("run")
    await aeventually(lambda: heard.client.ending == heard.client.made - 1)
    heard.channels.discard("another")
    await aeventually(lambda: heard.client.ending == heard.client.made)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "palaver-feeds"]


@pytest.mark.parametrize("idle", [False, True])
async def test_the_end_of_the_process_is_its_end(heard: Heard, idle: bool) -> None:
    heard.channels.add("run")
    await heard.hears("run")
    if idle:
        heard.channels.discard("run")
        await heard.hears_no_more("run")
    await asyncio.wait_for(heard.channels.close(), PATIENCE)
    assert (heard.client.ending, heard.in_use) == (1, 0)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "palaver-feeds"]
    await heard.hears_no_more("run")


@pytest.mark.parametrize("idle", [False, True])
async def test_a_connection_that_is_cut_is_made_again(heard: Heard, redis: Any, idle: bool) -> None:
    heard.channels.add("run")
    await heard.hears("run")
    (client,) = await redis.client_list(_type="pubsub")
    if idle:
        heard.channels.discard("run")
        await heard.hears_no_more("run")
    before = len(await redis.client_list())

    async def as_many() -> bool:
        return len(await redis.client_list()) == before

    await redis.client_kill_filter(_id=client["id"])
    await aeventually(as_many)
    if idle:
        heard.channels.add("run")
    await heard.hears("run")


async def test_what_a_new_connection_of_the_library_hears_too_much_is_dropped(heard: Heard, redis: Any) -> None:
    """It forgets, with its connection, which channels it was just told to hear no more."""
    for channel in ("run", "another"):
        heard.channels.add(channel)
        await heard.hears(channel)
    heard.client.loses_unsubscribes = True
    heard.channels.discard("another")
    heard.channels.add("third")
    await heard.hears("third")
    assert await heard.subscribed("another")
    heard.client.loses_unsubscribes = False
    await redis.client_kill_filter(_type="pubsub")
    await heard.hears_no_more("another")
    await heard.hears("run")


async def test_who_comes_as_an_old_confirmation_is_heard_is_not_taken_for_subscribed(heard: Heard) -> None:
    """The process is busy: it has subscribed for one, and for nobody any more, before it hears the first of that."""
    heard.channels.add("another")
    await heard.hears("another")
    heard.may_hear.clear()
    await heard.redis.publish("another", "news")
    heard.channels.add("run")

    async def subscribed() -> bool:
        return await heard.subscribed("run")

    await aeventually(subscribed)
    heard.channels.discard("run")
    await heard.hears_no_more("run")
    heard.comes_with = (("subscribe", "run"), "run")
    heard.may_hear.set()
    await heard.hears("run")
