"""Requests as they come: whoever sends them, and in whatever pieces, each is heard once and with its own body."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from api.edge.gate import Gate
from api.edge.http11 import Http11
from api.http.client_connection import connection_of

_PIECES = st.sampled_from(
    [b"{}", b"\r\n\r\n", b"\r\n", b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n", b"0\r\n\r\n", b"a" * 70]
)
_BODIES = st.lists(_PIECES, max_size=5).map(b"".join)


class Request(NamedTuple):
    """One that is sent."""

    reads: bool
    """True if the application reads its body."""
    body: bytes
    chunks: Sequence[int]
    """Lengths of its chunks, in turn; none if it says its length."""
    beside: bytes
    """Headers that change nothing."""
    trailer: bytes

    def on_the_wire(self) -> bytes:
        head = b"POST /%b HTTP/1.1\r\nHost: a\r\n%b" % (b"read" if self.reads else b"leave", self.beside)
        if not self.chunks:
            return head + b"Content-Length: %d\r\n\r\n%b" % (len(self.body), self.body)
        sent, left, at = b"", self.body, 0
        while left:
            size = min(len(left), self.chunks[at % len(self.chunks)])
            sent += b"%x;a=b\r\n%b\r\n" % (size, left[:size])
            left, at = left[size:], at + 1
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + sent + b"0\r\n" + self.trailer + b"\r\n"


_REQUESTS = st.builds(
    Request,
    reads=st.booleans(),
    body=_BODIES,
    chunks=st.lists(st.integers(1, 40), max_size=3),
    beside=st.sampled_from(
        [b"", b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Connection: Upgrade\r\nUpgrade: websocket\r\nA: b \r\n"]
    ),
    trailer=st.sampled_from([b"", b"Host: b\r\nExpect: 100-continue\r\n"]),
)


class _Client(asyncio.Transport):
    """The other side of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = b""
        self.reads = True
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.heard += data

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


async def _served(pieces: Sequence[bytes]) -> tuple[list[tuple[str, bytes | None]], list[bytes]]:
    """Return the requests that the application has heard, and the statuses of the answers."""
    heard = list[tuple[str, bytes | None]]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", scope["path"] == "/read"
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        heard.append((scope["path"], body if scope["path"] == "/read" else None))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    return heard, re.findall(rb"HTTP/1\.1 (\d{3}) ", await _answered(app, pieces))


async def _answered(app: ASGIApp, pieces: Sequence[bytes]) -> bytes:
    """Return what the application has answered."""
    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None)
    config.load()
    client, connection = _Client(), Http11(config, ServerState(), {}, gate=Gate(100, 64))
    connection.connection_made(client)
    for piece in [*pieces, b""]:
        for _ in range(100):
            await asyncio.sleep(0)
        assert client.reads, "what waits is answered within some turns"
        if piece:
            connection.data_received(piece)
    connection.connection_lost(None)
    return client.heard


@pytest.mark.parametrize("header", [(b"a\r\nb", b"c"), (b"a:b", b"c"), (b"a", b"b\r\nc: d"), (b"a", b"\0")])
async def test_no_header_of_an_answer_can_become_two(header: tuple[bytes, bytes]) -> None:
    refused = list[str]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        assert connection is not None
        usual = [(b"content-length", b"2"), (b"link", b"</a>; rel=next")]
        with pytest.raises(RuntimeError) as error:
            await connection.send_answer({"type": "", "status": 200, "headers": [*usual, header]}, b"no")
        refused.append(str(error.value))
        await connection.send_answer({"type": "", "status": 200, "headers": usual}, b"ok")

    answer = await _answered(app, [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
    assert answer.endswith(b"content-length: 2\r\nlink: </a>; rel=next\r\n\r\nok")
    assert refused
    assert b"no" not in answer.partition(b"\r\n\r\n")[2]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(_REQUESTS, min_size=1, max_size=5), st.lists(st.integers(1, 400), max_size=20))
def test_each_request_is_heard_once_with_its_own_body(requests: Sequence[Request], cuts: Sequence[int]) -> None:
    wire = b"".join(request.on_the_wire() for request in requests)
    pieces, at = list[bytes](), 0
    for size in cuts:
        pieces.append(wire[at : at + size])
        at += size
    pieces.append(wire[at:])
    heard, statuses = asyncio.run(_served([piece for piece in pieces if piece]))
    assert heard == [("/read", request.body) if request.reads else ("/leave", None) for request in requests]
    assert statuses == [b"200"] * len(requests)


@pytest.mark.parametrize(
    "wire", [b"GET  /leave HTTP/1.1\r\n", b"GET /leave  HTTP/1.1\r\n", b"GET /leave#a HTTP/1.1\r\n"]
)
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_request_line_has_two_blanks_and_no_fragment_in_whatever_pieces(wire: bytes, size: int) -> None:
    """Behind a body, too, whose piece it begins in."""
    good = Request(True, b"GET /leave HTTP/1.1\r\n", (), b"", b"").on_the_wire()
    sent = good + wire + b"Host: a\r\nA: b\r\n\r\n"
    heard, statuses = await _served([sent[at : at + size] for at in range(0, len(sent), size)])
    assert heard == [("/read", b"GET /leave HTTP/1.1\r\n")]
    assert statuses == [b"200", b"400"]
