"""Connections that are one too many, and clients that take nothing: which of them go, and when."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from api.edge import connections, sending
from api.edge.gate import Gate, network_of
from api.edge.http11 import Http11
from palaver.vocabulary.limits import exceeded
from tests.waiting import PATIENCE, aeventually

LARGE = 20_000_000
"""Bytes, more than the kernel keeps for a connection."""
GET = b"GET / HTTP/1.1\r\nHost: a\r\n"


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Says how large the answer is to be, or waits for a body that never comes."""
    size = int(scope["query_string"] or 2)
    if scope["path"] == "/wait":
        await receive()
    if scope["path"] == "/until":
        await scope["state"]["go"].wait()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": b"a" * size})


class Client:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def status(self) -> bytes:
        """The status of the next answer; empty if there is none."""
        return (await asyncio.wait_for(self.reader.readline(), PATIENCE))[9:12]

    async def rest(self) -> bytes:
        """All that comes until the other side closes."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE)

    async def statuses(self) -> list[bytes]:
        """The status of each answer that comes until the other side closes."""
        return re.findall(rb"HTTP/1\.1 (\d{3}) ", await self.rest())


Connect = Callable[..., Awaitable[Client]]


@asynccontextmanager
async def serving(gate: Gate, state: ServerState | None = None, **of_app: Any) -> AsyncIterator[Connect]:
    """What connects through ``gate``, and says something first."""
    config = uvicorn.Config(answer, lifespan="off", ws="none", log_config=None)
    config.load()
    state, loop, clients = state or ServerState(), asyncio.get_running_loop(), list[Client]()
    server = await loop.create_server(lambda: Http11(config, state, of_app, gate=gate), "127.0.0.1", 0)

    async def connect(said: bytes = b"") -> Client:
        client = Client(*await asyncio.open_connection(*server.sockets[0].getsockname()))
        clients.append(client)
        client.writer.write(said)
        return client

    async with server:
        yield connect
        for client in clients:
            client.writer.transport.abort()
        await aeventually(lambda: not state.connections)
        await asyncio.gather(*state.tasks, *(client.writer.wait_closed() for client in clients), return_exceptions=True)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("gate", "connections", "sending"):
        monkeypatch.setattr(f"api.edge.{module}.HASTE", 0.05)


async def test_the_connection_that_has_been_idle_longest_gives_way() -> None:
    gate, loop = Gate(3, 64), asyncio.get_running_loop()
    async with serving(gate) as connect:
        silent, half, idle = [await connect(said) for said in (b"", GET, GET + b"\r\n")]
        assert await idle.status() == b"200"
        busy: list[Client] = []
        for expected in (silent, half, idle):
            await aeventually(lambda: min(loop.time() - since for since in gate.spare.values()) > 0.05)
            busy.append(await connect(GET.replace(b"/", b"/wait", 1) + b"Content-Length: 9\r\n\r\n"))
            assert (b"HTTP/1.1 503 " in await expected.rest()) == (expected is half)
            await aeventually(lambda: len(gate.spare) == 3 - len(busy))
        assert await (await connect()).status() == b"503"
        assert gate.open == 3
        for client in busy:
            client.writer.write(b"123456789")
            assert await client.status() == b"200"


async def test_a_request_that_is_on_its_way_when_the_process_ends_is_answered_and_is_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = ServerState()
    async with serving(Gate(9, 64), state) as connect:
        silent, new, kept = await connect(), await connect(), await connect(GET + b"\r\n")
        assert await kept.status() == b"200"
        await aeventually(lambda: len(state.connections) == 3)
        monkeypatch.setattr("api.edge.connections.HASTE", 60)
        peers = {each.transport.get_extra_info("peername"): each for each in state.connections}
        for client in (new, kept):
            peers[client.writer.get_extra_info("sockname")].shutdown()
            client.writer.write(GET + b"\r\n")
            said = await client.rest()
            assert said.count(b"HTTP/1.1 200 OK") == said.lower().count(b"connection: close") == 1
        monkeypatch.setattr("api.edge.connections.HASTE", 0.05)
        peers[silent.writer.get_extra_info("sockname")].shutdown()
        assert await silent.rest() == b"", "it had time for a request"


async def test_an_address_with_many_half_heads_has_less_time_for_more() -> None:
    gate = Gate(100, 2)
    before = exceeded["half_open"]
    async with serving(gate) as connect:
        patient = [await connect(GET) for _ in range(2)]
        await aeventually(lambda: gate.heads["127.0.0.1"] == 2)
        hasty = [await connect(GET) for _ in range(3)]
        assert [await client.status() for client in hasty] == [b"408"] * 3
        assert exceeded["half_open"] == before + 3
        for client in patient:
            client.writer.write(b"\r\n")
            assert await client.status() == b"200"
        assert not gate.heads


async def test_a_head_is_timed_on_a_connection_that_had_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.edge.gate._HEAD_TIME", 0.2)
    async with serving(Gate(100, 64)) as connect:
        client = await connect(GET + b"\r\n")
        assert await client.status() == b"200"
        client.writer.write(GET)
        assert b"HTTP/1.1 408 " in await client.rest()


@pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
async def test_a_client_that_takes_nothing_of_its_answer(monkeypatch: pytest.MonkeyPatch, connection: bytes) -> None:
    monkeypatch.setattr(sending, "_SEND_TIME", 1.0)
    gate, before = Gate(100, 64), exceeded["send_time"]
    async with serving(gate) as connect:
        asked = GET.replace(b"/", b"/?%d" % LARGE, 1) + b"Connection: %b\r\n\r\n" % connection
        reads, never = await connect(asked), await connect(asked)
        size = 0
        while size < LARGE and (piece := await reads.reader.read(1 << 18)):
            size += len(piece)
        assert size >= LARGE
        await aeventually(lambda: exceeded["send_time"] == before + 1)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await never.reader.readexactly(LARGE)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_what_counts_as_one_address(address: str, network: str) -> None:
    assert network_of(address) == network


def test_a_protocol_says_what_depends_on_its_parser() -> None:
    bare: Any = connections.Bounded.__new__(connections.Bounded)
    for method in (bare.take_held, bare.has_part_of_a_head, partial(bare.feed, b"")):
        with pytest.raises(NotImplementedError):
            method()


@pytest.mark.slow
async def test_who_sends_ahead_is_answered_in_order_and_not_read_meanwhile() -> None:
    state, go = ServerState(), asyncio.Event()
    async with serving(Gate(100, 64), state, go=go) as connect:
        client = await connect(GET.replace(b"/", b"/until", 1) + b"\r\n")
        await aeventually(lambda: state.tasks)
        (connection,) = state.connections
        assert isinstance(connection, Http11)
        ahead = b"".join(GET.replace(b"/", b"/?%d" % size, 1) + b"\r\n" for size in range(3, 2_003)) * 30
        client.writer.write(ahead)
        await aeventually(lambda: connection.flow.read_paused)
        # As handlers do that look whether the client is there.
        connection.flow.resume_reading()
        assert not connection.transport.is_reading()
        assert 0 < len(connection._held) <= 16 << 10
        assert not connection.pipeline
        go.set()
        sizes = list[int]()
        while len(sizes) < 5_000:
            head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), PATIENCE)
            sizes.append(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            assert await client.reader.readexactly(sizes[-1]) == b"a" * sizes[-1]
            assert len(connection.pipeline) <= 1
        assert sizes == [2, *(list(range(3, 2_003)) * 30)[:4_999]]


@pytest.mark.parametrize("first", [b"", b"Connection: upgrade\r\nUpgrade: h2c\r\n"], ids=["plain", "asks for h2c"])
@pytest.mark.parametrize("body", [b"\r\n", b"Content-Length: 10\r\n\r\n{\r\n\r\n\r\n\r\n}"], ids=["", "with a body"])
@pytest.mark.parametrize("pieces", [False, True], ids=["at once", "byte by byte"])
async def test_what_is_behind_a_request_is_another_one(first: bytes, body: bytes, pieces: bool) -> None:
    asked = GET + first + body
    wrong = b"what is this\r\n\r\n"
    async with serving(Gate(100, 64)) as connect:
        client = await connect()
        for piece in [bytes([byte]) for byte in asked * 2 + wrong] if pieces else [asked * 2 + wrong]:
            client.writer.write(piece)
            await client.writer.drain()
        assert await client.statuses() == [b"200", b"200", b"400"]


async def test_what_is_behind_one_that_goes_wrong_is_not_heard_and_those_before_it_are_answered() -> None:
    state, go, asked = ServerState(), asyncio.Event(), GET + b"\r\n"
    chunked = GET.replace(b"/", b"/wait", 1) + b"Transfer-Encoding: chunked\r\n\r\n"
    async with serving(Gate(100, 64), state, go=go) as connect:
        # The body of the third is none, and it has not been begun.
        client = await connect(GET.replace(b"/", b"/until", 1) + b"\r\n" + asked + chunked + b"zz\r\n" + asked)
        # All of it has come before the first one is answered.
        await aeventually(lambda: any(isinstance(each, Http11) and each._held for each in state.connections))
        go.set()
        assert await client.statuses() == [b"200", b"200", b"400"]


async def test_trailers_are_let_go_and_are_no_headers() -> None:
    body = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nHost: b\r\n\r\n"
    async with serving(Gate(100, 64)) as connect:
        client = await connect(GET + body + GET + b"Connection: close\r\n\r\n")
        assert (await client.rest()).count(b"HTTP/1.1 200 ") == 2
