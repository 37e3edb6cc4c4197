"""A name leads to another server: what was the primary is a replica, whose connections stay open."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
from redis.asyncio import Redis
from redis.exceptions import ReadOnlyError

from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.delivery.deliveries import Publisher
from palaver.steps.leases import Delivery
from palaver.steps.wire import in_redis
from palaver.store import Store
from palaver.store.fleet.queue_lists import QueueLists
from tests.contract.test_shared_client import end, is_shared

pytestmark = pytest.mark.process

URL = "redis://redis.test:6379/0"
DELIVERY = Delivery("model", "run_00" + "1" * 26, "conv_00" + "2" * 26, "1", 1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, RedisServer]]:
    folder = tmp_path_factory.mktemp("pair")
    with RedisServer(data_dir=folder / "one") as one, RedisServer(data_dir=folder / "other") as other:
        yield one, other


@pytest.fixture
def move(pair: tuple[RedisServer, RedisServer], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], RedisServer]]:
    """Make a replica of the server to which the name leads, have it lead to the other one, and return that."""
    one, other = pair
    leads_to, look_up = [one], socket.getaddrinfo

    def found(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        if host == "redis.test":
            host, port = "127.0.0.1", leads_to[0].port
        return look_up(host, port, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with redis.Redis.from_url(one.url) as first, redis.Redis.from_url(other.url) as second:
        first.flushall()
        second.flushall()

        def moved() -> RedisServer:
            first.replicaof("127.0.0.1", other.port)
            leads_to[0] = other
            return other

        yield moved
        first.replicaof("NO", "ONE")


@pytest.fixture(params=[True, False], ids=["a shared connection", "a pool"])
async def client(request: pytest.FixtureRequest, move: Callable[[], RedisServer]) -> AsyncIterator[Redis]:
    made: Any = Store.connect(Settings(redis_url=URL), shared=request.param)._redis
    if request.param:
        await is_shared(made)
    yield made
    await end(made)


async def test_what_is_asked_goes_to_the_primary(client: Redis, move: Callable[[], RedisServer]) -> None:
    """A pooled connection learns of it by a refusal, one that is shared asks again: nothing was done."""
    await client.set("before", 1)
    new = move()
    refused = 0
    for number in range(5):
        pipeline = client.pipeline(transaction=False)
        pipeline.set(f"key-{number}", number)
        (answer,) = await pipeline.execute(raise_on_error=False)
        refused += isinstance(answer, ReadOnlyError)
    with redis.Redis.from_url(new.url) as there:
        assert there.exists(*(f"key-{number}" for number in range(5))) == 5 - refused
    assert refused == (0 if hasattr(client, "ask") else 1)


async def test_deliveries_go_to_the_primary(move: Callable[[], RedisServer]) -> None:
    lists = QueueLists(URL)
    try:
        await lists.push({"model": [in_redis(DELIVERY)]})
        move()
        with pytest.raises(ReadOnlyError):
            await lists.push({"model": [in_redis(DELIVERY)]})
        before = await lists.depth(["model"])
        await lists.push({"model": [in_redis(DELIVERY)]})
        assert await lists.depth(["model"]) == before + 1
    finally:
        await lists.close()


def test_those_of_kombu_do(move: Callable[[], RedisServer]) -> None:
    with closing(Publisher(URL)) as publisher:
        publisher.publish([DELIVERY])
        new = move()
        for _ in range(3):
            try:
                publisher.publish([DELIVERY])
            except Exception:  # of the client of a broker: the sweeper publishes again
                continue
        with redis.Redis.from_url(new.url) as there:
            assert there.llen("model") >= 2
