"""Requests about things of which there may be any number: none has more words than every server takes."""

from __future__ import annotations

from typing import Any

from palaver.store import Store
from palaver.store.reading.subscriptions import Subscriptions
from palaver.store.redis import fleet_keys, provider_keys
from palaver.store.redis.connection import MOST_ARGUMENTS, PubSubMessage, now_ms, portions
from tests.waiting import aeventually

MANY = MOST_ARGUMENTS + 200
NAMES = [f"x{number}" for number in range(MANY)]


def test_portions_have_everything_once_and_leave_room_for_the_command() -> None:
    assert [name for some in portions(NAMES) for name in some] == NAMES
    assert max(map(len, portions(NAMES))) < MOST_ARGUMENTS - 100
    assert list(portions(())) == []


async def test_a_roll_call_of_a_large_fleet(store: Store, redis: Any) -> None:
    now = await now_ms(redis) / 1000
    for some in portions(NAMES):
        pipeline = redis.pipeline(transaction=False)
        for name in some:
            pipeline.zadd(fleet_keys.WORKERS, {name: now})
        await pipeline.execute()
    census = await store.fleet.call_roll(NAMES[0])
    assert (census.known, census.gone) == (MANY, ())
    await redis.delete(fleet_keys.WORKERS)


async def test_places_of_many_calls(store: Store, redis: Any) -> None:
    await store.providers.renew_places("fake", NAMES)
    assert await redis.zcard(provider_keys.of_gate("fake").calls) == 0, "nobody has these places, so none is renewed"


class _Counted:
    """A pub/sub connection, and how many words each of its commands had."""

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub
        self.words: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pubsub, name)

    async def subscribe(self, *channels: str) -> None:
        self.words.append(1 + len(channels))
        await self._pubsub.subscribe(*channels)


async def test_channels_of_many_watchers(redis: Any) -> None:
    pubsub, heard = _Counted(redis.pubsub()), set[str]()

    async def hear(message: PubSubMessage) -> None:
        heard.add(message["channel"].decode())

    channels = Subscriptions(lambda: pubsub, hear)
    for name in NAMES:
        channels.add(name)
    await aeventually(lambda: heard == {*NAMES})
    assert sum(words - 1 for words in pubsub.words) == MANY
    assert max(pubsub.words) <= MOST_ARGUMENTS
    await channels.close()
