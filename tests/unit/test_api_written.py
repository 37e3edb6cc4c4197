"""Answers and pieces of streams that a connection writes itself: the bytes that uvicorn would write, in one write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import orjson
import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from api.edge.gate import Gate
from api.edge.http11 import Http11
from api.http.client_connection import ClientConnection, connection_of
from api.kit.streams import EventStream, Frames, Outlet
from api.native.frames import frame
from palaver.store.reading.events import StoredEvent
from tests.waiting import PATIENCE, aeventually

HOST = b"Host: a\r\n"
AT = datetime(2026, 1, 1, tzinfo=UTC)
PIECES = (b"one\n\n", b"two" * 2000 + b"\n\n", b"", b"three\n\n")
_REQUESTS = {
    "whole": b"GET /whole HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    "no body": b"HEAD /whole HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    "HTTP/1.0": b"GET /whole HTTP/1.0\r\n\r\n",
    "kept": b"GET /whole HTTP/1.1\r\n" + HOST + b"\r\nGET /whole HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    "with a body": b"POST /read HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n"
    b"Connection: close\r\n\r\nhi",
    "body unread": b"POST /whole HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n",
    "streamed": b"GET /stream HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    "streamed over HTTP/1.0": b"GET /stream HTTP/1.0\r\n\r\n",
}


async def pieces() -> AsyncGenerator[bytes, None]:
    """What is streamed."""
    for piece in PIECES:
        yield piece


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as a whole or in pieces; by the connection where that can be, as the middleware does."""
    if scope["path"] == "/stream":
        await EventStream(pieces(), asyncio.Event())(scope, receive, send)
        return
    said = (await receive())["body"] if scope["path"] == "/read" else b""
    connection, held = connection_of(scope), list[Message]()

    async def send_whole(message: Message) -> None:
        if connection is None:
            await send(message)
        elif message["type"] == "http.response.start":
            held.append(message)
        else:
            await connection.send_answer(held[0], message["body"])

    await Response(b"heard " + said, 200, media_type="text/plain")(scope, receive, send_whole)


@asynccontextmanager
async def serving(protocol: type[HttpToolsProtocol], **more: Any) -> AsyncIterator[Any]:
    """The address at which the application is served."""
    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, date_header=False)
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    state.default_headers = config.encoded_headers
    server = await loop.create_server(lambda: protocol(config, state, {}, **more), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()
        await aeventually(lambda: not state.connections)


async def answer(address: Any, request: bytes) -> bytes:
    """All that comes until the other side closes, or nothing more does."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    heard = b""
    while piece := await asyncio.wait_for(reader.read(2**20), PATIENCE):
        heard += piece
        if b"Content-Length: 9" in request:
            break
    writer.close()
    return heard


@pytest.mark.parametrize("what", _REQUESTS)
async def test_the_bytes_are_those_of_uvicorn(what: str) -> None:
    async with serving(HttpToolsProtocol) as plain, serving(Http11, gate=Gate(100, 64)) as ours:
        expected = await answer(plain, _REQUESTS[what])
        assert await answer(ours, _REQUESTS[what]) == expected
    assert expected.startswith(b"HTTP/1.1 ")
    assert expected.count(b"heard ") == {"kept": 2, "no body": 0}.get(what, "streamed" not in what)
    assert (b"three" in expected) == ("streamed" in what)


async def test_an_answer_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []

    class Noting(Http11):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            write = transport.write

            def noting(data: bytes) -> None:
                writes.append(bytes(data))
                write(data)

            monkeypatch.setattr(transport, "write", noting)
            super().connection_made(transport)

    async with serving(Noting, gate=Gate(100, 64)) as address:
        heard = await answer(address, _REQUESTS["whole"])
    assert [each for each in writes if each] == [heard]


class Client:
    """A connection to a client that may be behind."""

    def __init__(self, *, behind: bool = False) -> None:
        self.behind = behind
        self.sent: list[bytes] = []

    def write_chunk(self, piece: bytes) -> bool:
        """Take a piece, unless it is behind."""
        if not self.behind:
            self.sent.append(piece)
        return not self.behind


def _delta(seq: int) -> StoredEvent:
    return StoredEvent("run_1", seq, AT, "message.delta", orjson.dumps({"step": "1", "attempt": 1, "text": "so on"}))


def test_an_event_is_written_once_for_all_of_its_watchers() -> None:
    written: list[int] = []

    def write(event: StoredEvent) -> bytes:
        written.append(event.seq)
        return frame(event)

    shared = Frames(write)
    clients, outlets = [Client() for _ in range(100)], list[Outlet]()
    for client in clients:
        outlets.append(Outlet(shared.of))
        outlets[-1].connection = cast(ClientConnection, client)
    for seq in range(1, 6):
        event = _delta(seq)
        assert all(outlet.pass_on(event) for outlet in outlets)
        # Who was not waiting for it takes the same from a batch, and so does who reads it later.
        assert shared.of(event) is clients[0].sent[-1] is clients[99].sent[-1]
        assert shared.of(_delta(seq)) is clients[0].sent[-1]
    assert written == [1, 2, 3, 4, 5]


def test_nothing_is_passed_on_to_who_is_behind_or_not_there() -> None:
    outlet, client = Outlet(frame), Client(behind=True)
    assert not outlet.pass_on(_delta(1))
    outlet.connection = cast(ClientConnection, client)
    assert not outlet.pass_on(_delta(1))
    client.behind = False
    assert outlet.pass_on(_delta(1))
    assert client.sent == [frame(_delta(1))]
