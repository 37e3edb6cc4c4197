"""The client whose users share a connection: everybody hears what he asked for, whoever else comes, goes or waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError, NoScriptError, ResponseError

from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.redis import shared_client
from palaver.store.redis.shared_client import SharedClient, _Line
from tests.chaos.faulty_proxy import FaultyProxy
from tests.waiting import PATIENCE, aeventually

pytestmark = pytest.mark.process


async def shared(url: str) -> SharedClient:
    """The client of a store, with its shared connection."""
    client = Store.connect(Settings(redis_url=url), shared=True)._redis
    assert isinstance(client, SharedClient)
    await is_shared(client)
    return client


async def is_shared(client: SharedClient) -> None:
    async def asked() -> bool:
        return await client.ask([("PING",)]) == [b"PONG"]

    await aeventually(asked)


async def end(client: SharedClient) -> None:
    await client.aclose()
    await client.connection_pool.disconnect()


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[SharedClient]:
    client = await shared(server.url)
    await client.flushall()
    yield client
    await end(client)


async def everything(redis: Redis) -> list[Any]:
    """Answers of all kinds that the store reads."""
    await redis.flushall()
    await redis.hset("h", mapping={"a": "1", "b": b"\xff", "c": 2.5})
    await redis.zadd("z", {"one": 1, "two": 2.5})
    await redis.xadd("s", {"f": "v"}, id="1-0")
    sha = await redis.script_load("return {KEYS[1], ARGV[1], 7}")
    pipeline = redis.pipeline(transaction=False)
    pipeline.hgetall("h")
    pipeline.get("h")
    pipeline.zrange("z", 0, -1, withscores=True)
    return [
        await redis.hgetall("h"),
        await redis.hmget("h", ("a", "none", "b")),
        await redis.hget("h", "c"),
        await redis.hgetall("none"),
        await redis.zrange("z", 0, -1, desc=True, withscores=True),
        await redis.zscore("z", "two"),
        await redis.zscore("z", "none"),
        await redis.xrange("s", "-", "+", 10),
        await redis.exists("h"),
        await redis.set("k", b"\0\r\n", ex=100, nx=True),
        await redis.set("k", "v", ex=100, nx=True),
        await redis.get("k"),
        await redis.evalsha(sha, 1, "key", "argument"),
        await redis.ping(),
        sorted(await redis.info("keyspace")),
        [type(part) for part in await redis.time()],
        [each if not isinstance(each, Exception) else type(each) for each in await pipeline.execute(False)],
        await redis.unlink("h", "z"),
    ]


def deaf(client: SharedClient) -> _Line:
    """The shared connection, on which no answer of the server is heard any more."""
    line = client._line
    assert line is not None
    line._transport.pause_reading()
    return line


async def test_answers_are_read_as_redis_py_reads_them(server: RedisServer, client: SharedClient) -> None:
    plain = Redis.from_url(server.url)
    assert await everything(client) == await everything(plain)
    await plain.aclose()


async def test_errors_are_those_of_redis_py(client: SharedClient) -> None:
    with pytest.raises(NoScriptError):
        await client.evalsha("0" * 40, 0)
    await client.set("text", "x")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await client.hgetall("text")
    pipeline = client.pipeline(transaction=False)
    pipeline.get("text")
    pipeline.hgetall("text")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await pipeline.execute()
    pipeline.get("text")
    assert await pipeline.execute() == [b"x"]


async def test_everybody_has_his_own_answer_on_one_connection(client: SharedClient) -> None:
    async def use(number: int) -> bool:
        size = 1 + number % 7 * 2000
        await client.set(f"k{number}", f"{number} " * size)
        pipeline = client.pipeline(transaction=False)
        pipeline.get(f"k{number}")
        pipeline.get(f"k{number - 1}")
        own, _ = await pipeline.execute()
        return bool(own.startswith(f"{number} ".encode()) and len(own) == len(f"{number} ") * size)

    before = (await client.info("stats"))["total_connections_received"]
    assert all(await asyncio.gather(*(use(number) for number in range(500))))
    assert (await client.info("stats"))["total_connections_received"] == before


async def test_who_goes_away_takes_no_answer_and_no_connection_along(client: SharedClient) -> None:
    await client.set("k", 0)
    before = (await client.info("stats"))["total_connections_received"]
    asking = [asyncio.ensure_future(client.incr("k")) for _ in range(100)]
    await asyncio.sleep(0)
    for task in asking[::3]:
        task.cancel()
    heard = await asyncio.gather(*asking, return_exceptions=True)
    told = [each for each in heard if isinstance(each, int)]
    assert len(told) == len(set(told)) == 66
    assert sorted(told) == told
    assert await client.get("k") == b"100"
    assert (await client.info("stats"))["total_connections_received"] == before


async def test_what_keeps_a_connection_waiting_keeps_nobody_else_waiting(client: SharedClient) -> None:
    line, waiting = client._line, asyncio.create_task(client.execute_command("WAIT", 1, 0))
    try:
        waits = client.pipeline(transaction=False)
        waits.set("k", 1)
        waits.execute_command("WAIT", 1, 1)
        assert await waits.execute() == [True, 0]
        for _ in range(100):
            await client.ping()
        assert not waiting.done()
        # Behind a command that waits they would have been given up, and asked elsewhere.
        assert client._line is line
    finally:
        waiting.cancel()


async def test_a_connection_that_breaks_is_replaced_and_what_was_asked_is_asked_again(client: SharedClient) -> None:
    for round_ in range(5):
        asking = [asyncio.ensure_future(client.set(f"k{round_}-{number}", number)) for number in range(50)]
        await asyncio.sleep(0)
        client._line._transport.abort()  # type: ignore[union-attr]
        assert await asyncio.gather(*asking) == [True] * 50
        await is_shared(client)


async def test_a_connection_that_was_cut_without_a_word_counts_as_dead(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_client, "_PATIENCE", 0.2)
    client = await shared(server.url)
    cut = deaf(client)
    assert await asyncio.gather(*(client.ping() for _ in range(20))) == [True] * 20
    await is_shared(client)
    assert client._line is not cut
    await end(client)


async def test_what_was_cut_all_at_once_is_waited_for_once(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_client, "_PATIENCE", 0.2)
    with FaultyProxy(server.port).open() as proxy:
        client = await shared(proxy.redis_url)
        await asyncio.gather(*(client.set("k", "x" * 100_000) for _ in range(3)))
        proxy.cut()
        asking = [asyncio.ensure_future(client.ping()) for _ in range(5)]
        # A dead connection of the pool is waited for, 5 s.
        assert await asyncio.wait(asking, timeout=4) == ({*asking}, set())
        assert await asyncio.gather(*asking) == [True] * 5
        await end(client)


async def test_a_connection_on_which_a_long_answer_comes_is_not_dead(client: SharedClient) -> None:
    line = deaf(client)
    asking = asyncio.ensure_future(client.ping())
    await asyncio.sleep(0)
    line._waiting[0].at -= 2 * shared_client._PATIENCE
    line.data_received(b"+PO")
    line._look()
    assert not line._transport.is_closing()
    line._heard_at -= 2 * shared_client._PATIENCE
    line._look()
    assert line._transport.is_closing()
    assert await asking


async def test_a_script_travels_with_the_others_however_long_it_is(client: SharedClient) -> None:
    text = f"-- {'x' * 100_000}\nreturn {{KEYS[1], #ARGV[1]}}"
    others = len(await client.client_list())
    assert await client.eval(text, 1, "k", "a") == [b"k", 1]
    assert await client.evalsha(await client.script_load(text), 1, "k", "a") == [b"k", 1]
    assert len(await client.client_list()) == others
    assert await client.eval(text, 1, "k", "x" * 100_000) == [b"k", 100_000]
    assert len(await client.client_list()) == others + 1


async def test_a_long_question_holds_up_no_other(client: SharedClient) -> None:
    line = deaf(client)
    asking = asyncio.ensure_future(client.set("k", "x" * 100_000))
    assert await asyncio.wait_for(asking, PATIENCE)
    assert client._line is line


async def test_who_hears_that_the_server_is_not_ready_asks_again(client: SharedClient) -> None:
    line = deaf(client)
    asking = asyncio.ensure_future(client.ping())
    await asyncio.sleep(0)
    line.data_received(b"-LOADING Redis is loading the dataset in memory\r\n")
    (heard,) = await asyncio.gather(asking, return_exceptions=True)
    assert heard is True
    line._transport.abort()


async def test_what_is_cut_in_pieces_is_read_as_a_whole(server: RedisServer) -> None:
    with FaultyProxy(server.port).open() as proxy:
        client = await shared(proxy.redis_url)
        proxy.close_after = 10_000
        values = [await client.set("k", "x" * 3000), *[await client.get("k") for _ in range(20)]]
        assert values == [True, *[b"x" * 3000] * 20]
        await end(client)


async def test_without_a_server_it_says_so_as_redis_py_does() -> None:
    client = Store.connect(Settings(redis_url="redis://127.0.0.1:1/0"), shared=True)._redis
    assert isinstance(client, SharedClient)
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await client.ping()
    await end(client)
