"""The connection that hears channels: what was published comes in order, and its end is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError, ResponseError

from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.steps.leases import Delta
from palaver.store import Store
from palaver.store.redis.channel_connection import ChannelConnection
from palaver.store.redis.connection import Listener, PubSubMessage
from palaver.store.redis.shared_client import SharedClient
from tests.chaos.faulty_proxy import FaultyProxy
from tests.contract.store_driver import StoreDriver
from tests.waiting import PATIENCE, aeventually

pytestmark = pytest.mark.process


@pytest.fixture
async def server_client(server: RedisServer) -> AsyncIterator[Redis]:
    """Another client of the server."""
    async with Redis.from_url(server.url) as client:
        yield client


@pytest.fixture(params=[2, 3])
async def channels(request: pytest.FixtureRequest, server: RedisServer) -> AsyncIterator[ChannelConnection]:
    """A connection in each version of the protocol."""
    made = connection(f"{server.url}?protocol={request.param}")
    yield made
    await made.aclose()


def connection(url: str) -> ChannelConnection:
    """One as the API has it."""
    client = Store.connect(Settings(redis_url=url), shared=True)._redis
    assert isinstance(client, SharedClient)
    return client.channels()


async def heard(channels: ChannelConnection) -> PubSubMessage:
    """The next message."""
    message = await channels.get_message(timeout=PATIENCE)
    assert message is not None
    return message


async def test_messages_come_in_order_behind_the_confirmation(
    channels: ChannelConnection, server_client: Redis
) -> None:
    await channels.subscribe("news", "more")
    assert [await heard(channels), await heard(channels)] == [
        {"type": "subscribe", "channel": b"news", "data": 1},
        {"type": "subscribe", "channel": b"more", "data": 2},
    ]
    for number in range(300):
        await server_client.publish("news" if number % 2 else "more", f"{number} \r\n\0")
    assert [(await heard(channels))["data"] for _ in range(300)] == [b"%d \r\n\0" % number for number in range(300)]
    await channels.unsubscribe("more")
    assert (await heard(channels)) == {"type": "unsubscribe", "channel": b"more", "data": 1}
    await server_client.publish("more", "unheard")
    assert await channels.get_message(timeout=0.05) is None
    await channels.ping()
    assert (await heard(channels))["type"] == "pong"
    await channels.unsubscribe("news")
    assert (await heard(channels))["type"] == "unsubscribe"
    await channels.ping()
    assert (await heard(channels))["type"] == "pong"


async def test_what_nobody_takes_waits_in_redis(channels: ChannelConnection, server_client: Redis) -> None:
    await channels.subscribe("news")
    assert (await heard(channels))["type"] == "subscribe"
    for _ in range(300):
        await server_client.publish("news", b"x" * 100_000)
    await aeventually(lambda: channels._paused)
    assert sum(len(message["data"]) for message in channels._messages) < 2_000_000
    assert [len((await heard(channels))["data"]) for _ in range(300)] == [100_000] * 300
    assert (channels._held, channels._paused) == (0, False)
    await server_client.publish("news", b"more")
    assert (await heard(channels))["data"] == b"more"


async def test_who_waits_is_not_woken_by_a_part_of_a_message(channels: ChannelConnection) -> None:
    await channels.subscribe("news")
    await heard(channels)
    waiting = asyncio.create_task(channels.get_message(timeout=PATIENCE))
    await asyncio.sleep(0)
    whole = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$6\r\nin two\r\n"
    channels.data_received(whole[:30])
    await asyncio.sleep(0)
    assert not waiting.done()
    channels.data_received(whole[30:])
    message = await waiting
    assert message is not None
    assert message["data"] == b"in two"


async def test_its_end_is_told_behind_what_came_before(channels: ChannelConnection, server_client: Redis) -> None:
    await channels.subscribe("news")
    await server_client.publish("news", "last")
    await server_client.client_kill_filter(_type="pubsub")
    assert [(await heard(channels))["type"], (await heard(channels))["type"]] == ["subscribe", "message"]
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await channels.get_message(timeout=PATIENCE)
    with pytest.raises(ConnectionError):
        await channels.subscribe("more")


async def test_an_error_of_the_server_is_raised(channels: ChannelConnection) -> None:
    await channels._send("SUBSCRIBE")
    with pytest.raises(ResponseError):
        await channels.get_message(timeout=PATIENCE)


async def test_who_waits_no_more_loses_nothing(channels: ChannelConnection, server_client: Redis) -> None:
    await channels.subscribe("news")
    await heard(channels)
    waiting = asyncio.create_task(channels.get_message(timeout=None))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await server_client.publish("news", "hear, hear")
    assert (await heard(channels))["data"] == b"hear, hear"


async def test_a_dead_connection_is_noticed(server: RedisServer) -> None:
    with FaultyProxy(server.port).open() as proxy:
        made = connection(proxy.redis_url)
        await made.subscribe("news")
        listener = Listener(made, silence=0.2)
        message = await listener.hear()
        assert message is not None
        assert message["type"] == "subscribe"
        for _ in range(4):
            assert await listener.hear() is None
        proxy.blackhole = True
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(for_ever(listener), PATIENCE)
        await made.aclose()


async def for_ever(listener: Listener) -> None:
    """Listen to nothing."""
    while True:
        await listener.hear()


async def test_watchers_of_a_process_lose_nothing_when_it_breaks(server: RedisServer, server_client: Redis) -> None:
    await server_client.flushall()
    async with Store.connect(Settings(redis_url=server.url, shards=1), shared=True) as store:
        driver = StoreDriver(store, server_client)
        run_id, lease = await driver.begin()
        numbers: list[int] = []

        async def watch() -> None:
            async for event in store.feeds.watch(run_id):
                numbers.extend(range(event.begins, event.seq + 1) if event else ())

        watching = asyncio.create_task(watch())
        await aeventually(lambda: len(numbers) == 4)
        for number in range(5):
            await server_client.client_kill_filter(_type="pubsub")
            await store.steps.write_deltas([Delta(lease, "x")])
            await aeventually(lambda number=number: len(numbers) == 5 + number)  # type: ignore[misc]
        await driver.finish(lease)
        await asyncio.wait_for(watching, PATIENCE)
        assert numbers == list(range(1, 12))
