"""Connections that Sentinels lead to a primary: they follow it, and Sentinels that are away or lie are outlived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from redis import Redis as BlockingRedis
from redis.exceptions import AuthenticationError, ConnectionError, RedisError

from features.stack.ports import HOST, free_port
from features.stack.redis_server import RedisServer
from palaver.config.sentinels import sentinels_of
from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.redis import shared_client
from palaver.store.redis.pools import client_of
from palaver.store.redis.sentinel import blocking
from tests.sentinels import OPTIONS, SERVICE
from tests.waiting import PATIENCE, aeventually, eventually

pytestmark = pytest.mark.process


class ScriptedSentinel:
    """Speaks as much of a Sentinel's language as clients use, and says what it is told to."""

    def __init__(self, primary: RedisServer | None) -> None:
        self.primary = primary
        self.silent = False
        """True if it takes connections and answers nothing."""
        self.garbled = False
        """True if what it answers is no address."""
        self.asked = 0
        self._listeners: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[ScriptedSentinel]:
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in tuple(self._open):
                writer.transport.abort()

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def announce(self, primary: RedisServer, service: str = SERVICE) -> None:
        """Say that the primary is another one."""
        said = f"{service} {HOST} 1 {HOST} {primary.port}"
        for writer in self._listeners:
            writer.write(_array("message", "+switch-master", said))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                command = await _command(reader)
                if not self.silent:
                    writer.write(self._answer(command, writer))
        except (asyncio.IncompleteReadError, OSError, ValueError):
            writer.close()
        finally:
            self._open.discard(writer)
            self._listeners.discard(writer)

    def _answer(self, command: list[str], writer: asyncio.StreamWriter) -> bytes:
        match command:
            case ["SENTINEL", *_]:
                self.asked += 1
                if self.garbled:
                    return _array("nonsense")
                return _array(HOST, str(self.primary.port)) if self.primary else b"*-1\r\n"
            case ["SUBSCRIBE", channel]:
                self._listeners.add(writer)
                return f"*3\r\n$9\r\nsubscribe\r\n${len(channel)}\r\n{channel}\r\n:1\r\n".encode()
            case ["PING"]:
                return _array("pong", "")
        return b"+OK\r\n"


async def _command(reader: asyncio.StreamReader) -> list[str]:
    count = int((await reader.readuntil(b"\r\n"))[1:])
    words = []
    for _ in range(count):
        length = int((await reader.readuntil(b"\r\n"))[1:])
        words.append((await reader.readexactly(length + 2))[:-2].decode())
    return words


def _array(*words: str) -> bytes:
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two servers, of which nobody but a test makes one the other's replica."""
    with RedisServer(options=OPTIONS) as first, RedisServer(options=OPTIONS) as second:
        yield first, second


@pytest.fixture(autouse=True)
def apart(servers: tuple[RedisServer, RedisServer]) -> Iterator[None]:
    yield
    for server in servers:
        server.resume()
        with BlockingRedis.from_url(server.url) as client:
            client.replicaof("NO", "ONE")
            client.flushall()


def _url(*sentinels: ScriptedSentinel | int) -> str:
    ports = (each if isinstance(each, int) else each.port for each in sentinels)
    return f"redis+sentinel://{','.join(f'{HOST}:{port}' for port in ports)}/{SERVICE}/0"


@asynccontextmanager
async def _store(url: str) -> AsyncIterator[Any]:
    """The client of a store, with its shared connection."""
    async with Store.connect(Settings(redis_url=url), shared=True) as store:
        client: Any = store._redis
        await client.ping()
        await aeventually(lambda: client._line is not None)
        yield client


def _follow(replica: RedisServer, primary: RedisServer) -> None:
    with BlockingRedis.from_url(replica.url) as client:
        client.replicaof(HOST, str(primary.port))
        eventually(lambda: client.info("replication")["master_link_status"] == "up")


async def _port_of(client: Any) -> int:
    return int((await client.info("server"))["tcp_port"])


async def test_what_is_announced_ends_connections_to_a_server_that_stands_still(
    servers: tuple[RedisServer, RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shared one, those of the pool, and one that only listens: none of them would notice by itself."""
    monkeypatch.setattr(shared_client, "_PATIENCE", 2 * PATIENCE)
    first, second = servers
    async with ScriptedSentinel(first).listen() as sentinel, _store(_url(sentinel)) as client:
        channels = client.channels()
        await channels.subscribe("palaver:test")
        assert (await channels.get_message(timeout=PATIENCE))["type"] == "subscribe"
        assert await _port_of(client) == first.port
        await aeventually(lambda: sentinel.listeners == 1)
        first.pause()
        asking = asyncio.create_task(client.get("x"))
        sentinel.announce(second, service="another")
        sentinel.primary = second
        sentinel.announce(second)
        with pytest.raises(ConnectionError):
            await channels.get_message(timeout=PATIENCE)
        assert await asyncio.wait_for(asking, PATIENCE) is None
        assert await _port_of(client) == second.port
        await channels.aclose()


async def test_what_is_announced_is_believed_before_a_sentinel_that_has_not_heard(
    servers: tuple[RedisServer, RedisServer],
) -> None:
    first, second = servers
    async with (
        ScriptedSentinel(first).listen() as late,
        ScriptedSentinel(first).listen() as sentinel,
        _store(_url(late, sentinel)) as client,
    ):
        await aeventually(lambda: sentinel.listeners == 1)
        first.pause()
        sentinel.announce(second)
        assert await asyncio.wait_for(aeventually(lambda: _at(client, second)), PATIENCE)


async def _at(client: Any, server: RedisServer) -> bool:
    with suppress(RedisError):
        return await _port_of(client) == server.port
    return False


async def test_a_server_that_has_become_a_replica_is_left(servers: tuple[RedisServer, RedisServer]) -> None:
    first, second = servers
    async with ScriptedSentinel(first).listen() as sentinel, _store(_url(sentinel)) as client:
        await client.set("x", 1)
        _follow(first, second)
        with pytest.raises(ConnectionError):
            # Nobody names another one yet: the same server is asked again, and refused.
            await client.set("x", 2)
        sentinel.primary = second
        assert await client.set("x", 3)
        assert await _port_of(client) == second.port


async def test_sentinels_that_are_away_silent_or_wrong_are_passed_over(
    servers: tuple[RedisServer, RedisServer],
) -> None:
    first, second = servers
    _follow(second, first)
    async with (
        ScriptedSentinel(first).listen() as silent,
        ScriptedSentinel(None).listen() as stranger,
        ScriptedSentinel(first).listen() as garbled,
        ScriptedSentinel(second).listen() as liar,
        ScriptedSentinel(first).listen() as good,
    ):
        silent.silent = garbled.garbled = True
        url = _url(free_port(), silent, stranger, garbled, liar, good)
        async with asyncio.timeout(PATIENCE):
            async with client_of(url, seconds=5) as client:
                assert await _port_of(client) == first.port
                asked = silent.asked
                for _ in range(3):
                    await client.connection_pool.disconnect(inuse_connections=False)
                    assert await client.ping()
                assert silent.asked == asked, "who does not answer is asked last"

        def ask() -> int:
            with BlockingRedis.from_pool(blocking.pool(sentinels_of(url), socket_timeout=5)) as client:
                return int(client.info("server")["tcp_port"])

        assert await asyncio.wait_for(asyncio.to_thread(ask), PATIENCE) == first.port


@pytest.mark.parametrize("connect", ["asynchronous", "blocking"])
async def test_nobody_who_knows_is_told_with_each_reason(connect: str) -> None:
    away = free_port()
    async with ScriptedSentinel(None).listen() as stranger:
        url = _url(away, stranger)
        with pytest.raises(ConnectionError) as told:
            await (_ping(url) if connect == "asynchronous" else asyncio.to_thread(_blocking_ping, url))
    assert str(told.value) == (
        f"no Sentinel knows the primary of {SERVICE}: {HOST}:{away} does not answer (ConnectionError); "
        f"{HOST}:{stranger.port} knows no service {SERVICE}"
    )


async def _ping(url: str) -> None:
    async with client_of(url, seconds=5) as client:
        await client.ping()


def _blocking_ping(url: str) -> None:
    with BlockingRedis.from_pool(blocking.pool(sentinels_of(url))) as client:
        client.ping()


async def test_one_that_announces_nonsense_all_the_time_does_little_harm(
    servers: tuple[RedisServer, RedisServer],
) -> None:
    first, second = servers
    _follow(second, first)
    async with (
        ScriptedSentinel(first).listen() as good,
        ScriptedSentinel(second).listen() as liar,
        _store(_url(good, liar)) as client,
    ):
        await aeventually(lambda: liar.listeners == 1)
        for _ in range(200):
            liar.announce(second)
            assert await client.set("x", 1)
        assert await _port_of(client) == first.port
        assert good.asked < 20


async def test_a_wrong_password_of_the_server_is_not_asked_about_again() -> None:
    with RedisServer(options={"requirepass": "right"}, login=("default", "right")) as server:
        async with ScriptedSentinel(server).listen() as one, ScriptedSentinel(server).listen() as other:
            url = _url(one, other).replace("://", "://:wrong@")
            with pytest.raises(AuthenticationError):
                await _ping(url)
            assert one.asked + other.asked == 1


async def test_nothing_is_left_of_it(servers: tuple[RedisServer, RedisServer]) -> None:
    first, _ = servers
    async with ScriptedSentinel(first).listen() as sentinel:
        async with _store(_url(sentinel)):
            await aeventually(lambda: sentinel.listeners == 1)
        await aeventually(lambda: sentinel.listeners == 0)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("sentinel ")]
