"""WebSockets on a real server: who is let in, what one hears that is not, and how each of them ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

import orjson
import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Scope
from starlette.websockets import WebSocket
from uvicorn.server import ServerState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from api.edge.gate import Gate
from api.edge.http11 import Http11
from api.http import sockets
from api.http.auth import bearer
from api.http.sockets import CloseCodes
from api.kit.dialects import Dialect
from api.native import NATIVE
from palaver.config.settings import Settings
from palaver.errors import NoRoom, UnknownConversation
from palaver.operations import Backend
from palaver.processes.turns import Turns
from palaver.vocabulary.limits import exceeded, limit_of
from tests.unit.api_world import SETTINGS, World, world
from tests.unit.toy_dialect import TOY
from tests.waiting import PATIENCE, aeventually

KEY = "key-of-the-operators"
GUARDED = Settings(redis_url="redis://fake/0", api_keys=KEY)
BEARER = {"Authorization": f"Bearer {KEY}"}
CODES = CloseCodes(unauthenticated=4001, unknown=4004)


def _key_of(scope: Scope, headers: Mapping[bytes, bytes]) -> bytes | None:
    query = scope["query_string"]
    return query.removeprefix(b"key=") if query else bearer(scope, headers)


LIVE = Dialect("live", "/live", TOY.respond, TOY.errors, _key_of)


def _key_in(frame: str) -> bytes | None:
    match orjson.loads(frame) if frame[:1] in "{[" else None:
        case {"key": str(key)}:
            return key.encode()
    return None


_OPENING = (
    b"GET /live/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def _frame(head: int, data: bytes) -> bytes:
    """A frame of a client, with a mask that changes nothing."""
    return bytes([head, 0x80 | len(data)]) + bytes(4) + data


@LIVE.socket("/live/{what}", scope="runs:read", key_in=_key_in, codes=CODES)
async def live(backend: Backend, socket: WebSocket) -> None:
    """Says hello, and what one asks for."""
    match socket.path_params["what"]:
        case "nothing":
            raise UnknownConversation("nothing")
        case "full":
            raise NoRoom("too_many_watchers", "this process serves enough of them")
        case "broken":
            raise RuntimeError("it is broken")
        case "much":
            while True:
                await socket.send_text("a" * 1_000_000)
        case _:
            await socket.send_text("hello")
            await asyncio.Event().wait()


@dataclass
class Served:
    """An API on a real server."""

    api: World
    url: str
    gate: Gate
    state: ServerState

    @asynccontextmanager
    async def socket(
        self, what: str = "hello", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[ClientConnection]:
        async with connect(f"{self.url}/live/{what}", additional_headers=headers, proxy=None) as socket:
            yield socket

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A socket by hand, without a key; little is read of what comes, until somebody reads."""
        reader, writer = await asyncio.open_connection(*self.url.removeprefix("ws://").split(":"), limit=2_000)
        writer.write(_OPENING)
        await reader.readuntil(b"\r\n\r\n")
        yield reader, writer
        writer.transport.abort()

    async def code(self, what: str = "hello", headers: Mapping[str, str] | None = None, *said: str) -> int | None:
        """The code with which a socket is closed, after one has said something."""
        async with self.socket(what, headers) as socket:
            for each in said:
                await socket.send(each)
            with suppress(ConnectionClosed):
                async with asyncio.timeout(PATIENCE):
                    async for _ in socket:
                        pass
        return socket.close_code


@asynccontextmanager
async def serving(settings: Settings = SETTINGS, *more: Dialect) -> AsyncIterator[Served]:
    gate = Gate(10, 10)
    async with world(settings, dialects=(NATIVE, LIVE, *more)) as api:
        config = uvicorn.Config(
            api.app,
            lifespan="off",
            http=Http11,
            ws="websockets-sansio",
            ws_max_size=limit_of("socket_frame"),
            log_config=None,
            ws_per_message_deflate=False,
        )
        config.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Http11(config, state, {}, gate=gate), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            yield Served(api, f"ws://127.0.0.1:{port}", gate, state)
            api.app.state.backend.closing.set()
            await aeventually(lambda: not state.connections)


@pytest.mark.parametrize("way", ["header", "query", "frame"])
async def test_a_key_comes_in_a_header_in_the_query_or_in_the_first_frame(way: str) -> None:
    what = f"hello?key={KEY}" if way == "query" else "hello"
    async with serving(GUARDED) as served, served.socket(what, BEARER if way == "header" else None) as socket:
        if way == "frame":
            await socket.send(f'{{"key":"{KEY}"}}')
        assert await asyncio.wait_for(socket.recv(), PATIENCE) == "hello"


@pytest.mark.parametrize("said", ['{"key":"another"}', '{"key":""}', "{}", "no JSON", '{"key":1}', "[]"])
async def test_without_a_key_nothing_is_said(said: str) -> None:
    async with serving(GUARDED) as served:
        assert await served.code("hello", None, said) == 4001


async def test_who_says_nothing_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_PATIENCE", 0.05)
    async with serving(GUARDED) as served:
        assert await served.code() == 4001


async def test_without_keys_a_key_is_ignored() -> None:
    async with serving() as served, served.socket() as socket:
        await socket.send('{"key":"any"}')
        assert await asyncio.wait_for(socket.recv(), PATIENCE) == "hello"
        await socket.send('{"key":"any"}')
        pong = await socket.ping()
        await asyncio.wait_for(pong, PATIENCE)


@pytest.mark.parametrize(("what", "code"), [("nothing", 4004), ("full", 1013), ("broken", 1011)])
async def test_what_goes_wrong_has_a_code(what: str, code: int) -> None:
    async with serving() as served:
        assert await served.code(what) == code


async def test_the_end_of_the_process_is_not_the_end_of_what_is_watched() -> None:
    async with serving() as served, served.socket() as socket:
        await asyncio.wait_for(socket.recv(), PATIENCE)
        served.api.app.state.backend.closing.set()
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), PATIENCE)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012


async def test_a_frame_has_a_most() -> None:
    async with serving() as served:
        assert await served.code("hello", None, "a" * (limit_of("socket_frame") + 1)) == 1009


async def test_a_path_without_a_socket_is_one_of_http() -> None:
    async with serving() as served:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{served.url}/v1/runs", proxy=None):
                pass
        assert refused.value.response.status_code == 200


async def test_pages_of_others_open_none() -> None:
    async with serving() as served:
        with pytest.raises(InvalidStatus) as refused:
            async with served.socket("hello", {"Origin": "http://evil.example"}):
                pass
        assert refused.value.response.status_code == 403


async def test_a_socket_keeps_its_place_until_it_ends() -> None:
    async with serving() as served:
        async with served.socket() as socket:
            await asyncio.wait_for(socket.recv(), PATIENCE)
            assert (served.gate.open, dict(served.gate.heads), dict(served.gate.spare)) == (1, {}, {})
        await aeventually(lambda: served.gate.open == 0)


async def test_sockets_without_a_key_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.edge.gate.HASTE", 0.0)
    async with serving(GUARDED) as served, AsyncExitStack() as silent:
        for _ in range(10):
            await silent.enter_async_context(served.socket())
        assert (served.gate.open, len(served.gate.spare)) == (10, 10)
        assert set(served.gate.heads.values()) == {10}
        async with served.socket("hello", BEARER) as socket:
            assert await asyncio.wait_for(socket.recv(), PATIENCE) == "hello"
            assert (served.gate.open, len(served.gate.spare)) == (10, 9)
    assert (served.gate.open, dict(served.gate.heads), dict(served.gate.spare)) == (0, {}, {})


async def test_an_address_with_many_sockets_without_a_key_has_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.edge.gate.HASTE", 0.05)
    before = exceeded["half_open"]
    async with serving(GUARDED) as served:
        served.gate.half_open = 1
        async with served.socket(), served.socket("hello", BEARER) as known:
            assert await served.code() == 4001
            assert await asyncio.wait_for(known.recv(), PATIENCE) == "hello"
    assert exceeded["half_open"] > before


async def test_who_is_refused_and_does_not_listen_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.edge.socket_connections.HASTE", 0.05)
    async with serving(GUARDED) as served, served.raw() as (reader, writer):
        writer.write(_frame(0x81, b"{}"))
        # A close with 4001; the client does not say it again.
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b"\x88\x02\x0f\xa1"


BROKEN = {
    "2^62 bytes": b"\x81\xff" + (1 << 62).to_bytes(8, "big") + bytes(4),
    "2^64 - 1 bytes": b"\x82\xff" + b"\xff" * 8 + bytes(4),
    "no UTF-8": _frame(0x81, b"\xff\xfe"),
    "no UTF-8 in parts": _frame(0x01, b"a") + _frame(0x80, b"\xc3"),
    "no mask": b"\x81\x02{}",
    "an unknown kind": _frame(0x83, b""),
    "a part of nothing": _frame(0x80, b""),
    "a long ping": b"\x89\xfe\x00\x80" + bytes(4 + 128),
    "a code that is none": _frame(0x88, b"\x00\x01"),
    "a reason that is no UTF-8": _frame(0x88, b"\x03\xe8\xff"),
}
"""What no client of WebSockets sends."""


@pytest.mark.parametrize("settings", [SETTINGS, GUARDED], ids=["open", "guarded"])
@pytest.mark.parametrize("what", BROKEN)
async def test_what_no_client_sends_closes_the_socket_without_a_traceback(
    what: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(settings) as served, served.raw() as (reader, writer):
        writer.write(BROKEN[what])
        await asyncio.wait_for(reader.read(), PATIENCE)
        await aeventually(lambda: served.gate.open == 0)
    assert "Traceback" not in caplog.text
    assert not [each for each in caplog.records if each.levelno > logging.INFO]
    (line,) = [each for each in caplog.records if "no WebSocket" in each.getMessage()]
    assert line.levelno == logging.INFO


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then", "limit"),
    [(b"", _frame(0x89, b"a" * 125), "socket_pings"), (_frame(0x01, b""), _frame(0x00, b""), "socket_parts")],
    ids=["pings", "empty parts"],
)
async def test_a_flood_that_nobody_takes_ends_the_connection(first: bytes, then: bytes, limit: str) -> None:
    before = exceeded[limit]
    async with serving(GUARDED) as served, served.raw() as (_, writer):
        writer.write(first)
        with suppress(OSError):
            async with asyncio.timeout(PATIENCE):
                while served.gate.open:
                    writer.write(then * 500)
                    await writer.drain()
        assert served.gate.open == 0
        assert exceeded[limit] == before + 1


async def test_a_client_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.edge.sending._SEND_TIME", 0.05)
    async with serving() as served, served.socket("much") as socket:
        # The client's library takes as much as it has room for, and nobody asks it for that.
        await aeventually(lambda: served.gate.open == 0)
        socket.transport.abort()


async def test_no_key_stands_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "websockets.client")
    async with serving(GUARDED) as served:
        async with served.socket(f"hello?key={KEY}") as socket:
            await asyncio.wait_for(socket.recv(), PATIENCE)
        assert await served.code("hello?key=another-secret", None, "{}") == 4001
    assert '"WEBSOCKET /live/hello HTTP/1.1" 101' in caplog.text
    assert KEY not in caplog.text
    assert "another-secret" not in caplog.text


async def test_who_goes_before_its_turn_comes_is_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a burst most clients have gone by then; a traceback for each took more time than all else for them."""
    waiting, may_go_on = list[object](), asyncio.Event()

    async def take(turns: Turns) -> None:
        waiting.append(turns)
        await may_go_on.wait()

    monkeypatch.setattr(Turns, "take", take)
    async with serving(GUARDED) as served:
        _, writer = await asyncio.open_connection(*served.url.removeprefix("ws://").split(":"))
        writer.write(_OPENING)
        await aeventually(lambda: waiting)
        writer.transport.abort()
        await aeventually(lambda: served.gate.open == 0)
        may_go_on.set()
        await aeventually(lambda: not served.state.tasks)
    assert not [each for each in caplog.records if each.levelno > logging.INFO], caplog.text


@pytest.mark.parametrize("gone", [False, True], ids=["in the same moment", "a moment before"])
@pytest.mark.parametrize("closing", [False, True], ids=["is accepted", "is sent away"])
async def test_a_socket_that_the_server_ends_before_its_route_answers_is_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, closing: bool, gone: bool
) -> None:
    """When a process ends, uvicorn answers what nobody has answered yet, and the route is about to."""
    waiting, may_go_on = list[object](), asyncio.Event()

    async def wait(about: object) -> None:
        waiting.append(about)
        await may_go_on.wait()

    class Late(WebSocket):
        async def send_denial_response(self, response: Response) -> None:
            await wait(self)
            await super().send_denial_response(response)

    monkeypatch.setattr(Turns, "take", wait)
    monkeypatch.setattr("starlette.routing.WebSocket", Late)
    async with serving(GUARDED) as served:
        if closing:
            served.api.app.state.backend.closing.set()
        reader, writer = await asyncio.open_connection(*served.url.removeprefix("ws://").split(":"))
        writer.write(_OPENING)
        await aeventually(lambda: waiting)
        (connection,) = served.state.connections
        if not gone:
            may_go_on.set()
        connection.shutdown()
        if gone:
            await aeventually(lambda: not served.state.connections)
            may_go_on.set()
        await aeventually(lambda: not served.state.tasks)
        assert b" 500 " in await reader.read()
        writer.transport.abort()
    assert not [each for each in caplog.records if each.exc_info], caplog.text
