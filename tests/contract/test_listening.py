"""A subscribed connection whose other end is gone without a word is noticed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from kombu.connection import Connection as Broker
from redis.asyncio import Redis
from redis.exceptions import ConnectionError

from features.stack.redis_server import RedisServer
from palaver.delivery.deliveries import transport_options
from palaver.store.redis.connection import Listener
from tests.chaos.faulty_proxy import FaultyProxy
from tests.waiting import PATIENCE

pytestmark = pytest.mark.process


@pytest.fixture
async def proxy(server: RedisServer) -> AsyncIterator[FaultyProxy]:
    """A way to the server that can go silent."""
    with FaultyProxy(server.port).open() as proxy:
        yield proxy


@pytest.mark.parametrize("health_check_interval", [0, 1])
async def test_a_dead_connection_is_noticed(proxy: FaultyProxy, health_check_interval: int) -> None:
    redis = Redis.from_url(proxy.redis_url, health_check_interval=health_check_interval)
    async with redis, redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe("news")
        listener = Listener(pubsub, silence=0.4)
        for _ in range(8):  # seconds of an idle connection that is alive
            assert await listener.hear() is None
        await redis.publish("news", "hear, hear")
        async with asyncio.timeout(PATIENCE):
            while (message := await listener.hear()) is None:
                pass
        assert message["data"] == b"hear, hear"
        proxy.blackhole = True
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(for_ever(listener), PATIENCE)


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system does not let programs choose")
def test_brokers_connections_are_probed(server: RedisServer) -> None:
    """Flower reads Celery's events on one that nothing else checks."""
    with Broker(server.url, transport_options=transport_options(server.url)) as connection:
        probed = connection.default_channel.pool.get_connection()
        assert probed._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert probed._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


async def for_ever(listener: Listener) -> None:
    """Listen to nothing."""
    while True:
        await listener.hear()
