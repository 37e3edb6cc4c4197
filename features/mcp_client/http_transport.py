"""Streamable HTTP: each message is a POST of its own, answered with JSON or with a stream of events that ends with the
answer.

Others run the servers, so there are no redirects, no cookies, nothing compressed, and no connection to an address at
which clouds keep keys.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver

from palaver.errors import ConfigurationError
from palaver.errors.headers import retry_after
from palaver.incoming.event_stream import Event, EventParser
from workers.connections.guarded_resolver import GuardedResolver

from .wire import (
    ENDED,
    MAX_BODY,
    Heard,
    InvalidAnswer,
    Lost,
    Message,
    NeverSent,
    NotTried,
    RequestRefused,
    SessionGone,
    answer_to,
    cancelled,
    is_answer,
    is_change,
    messages_of,
    read_messages,
    result_of,
)

WhoAsks = Callable[[], Awaitable[Mapping[str, str]]]
"""The headers that say who asks."""

_CONNECT: Final = 10.0
_PIECE: Final = 64 * 1024
"""Bytes of a body that are looked at in one go."""
_FAREWELL: Final = 1.0
"""Seconds for a message to a server that has no answer."""
_MOST_FAREWELLS: Final = 16
_RESUMPTIONS: Final = 3
"""Attempts in a row to let a stream go on, each without anything new."""
_RETRY, _LONGEST_RETRY = 1.0, 60.0
"""Seconds after which a stream is asked to go on, unless it says when; and at most."""
_STREAM: Final = "text/event-stream"
_SESSION: Final = "Mcp-Session-Id"
_LONGEST_SESSION: Final = 1024
_ERROR_BODY: Final = 64 * 1024


def http_client(*, outward: bool = False, names: AbstractResolver | None = None) -> aiohttp.ClientSession:
    """A client for servers of tools. With ``outward`` it connects to no address of a private network; ``names`` looks
    names up."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=GuardedResolver("the server", outward=outward, names=names), limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
    )


@asynccontextmanager
async def answering(response: Awaitable[aiohttp.ClientResponse]) -> AsyncIterator[aiohttp.ClientResponse]:
    """A response within a block, whose errors are those of ``wire``; its connection is closed if it was not read to its
    end.

    Raises:
        NeverSent: there was no connection.
        Lost: it broke later.
    """
    try:
        answer = await response
        try:
            yield answer
        finally:
            answer.close()
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise NeverSent(f"no connection: {_why(error)}") from error
    except ConfigurationError as error:
        raise NeverSent(str(error)) from error
    except aiohttp.ClientResponseError as error:
        raise Lost("it answered with what is no HTTP") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Lost("the connection broke") from error


def _why(error: aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError) -> str:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "there is no such host"
        case aiohttp.ClientSSLError():
            return "TLS failed"
        case aiohttp.ConnectionTimeoutError():
            return "nothing answered in time"
    return os.strerror(error.errno) if error.errno else "it is not reached"


async def _next_piece(response: aiohttp.ClientResponse) -> bytes:
    """The next piece of a body; an empty one if that is all, or it broke off."""
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, OSError):
        return b""


async def whole(response: aiohttp.ClientResponse, most: int = MAX_BODY, begun: bytes = b"") -> bytes:
    """The body of a response, of which ``begun`` was read before.

    Raises:
        InvalidAnswer: it is longer than ``most`` bytes.
    """
    body = bytearray(begun)
    while piece := await response.content.read(_PIECE):
        body += piece
        if len(body) > most:
            raise InvalidAnswer(f"it sent more than {most:,} bytes")
    return bytes(body)


class _Events(EventParser):
    """The events of one answer, in as many streams as it takes. All of them together have a limit."""

    def __init__(self) -> None:
        super().__init__(MAX_BODY)
        self._received = 0

    def feed(self, data: bytes) -> Sequence[Event]:
        """As ``EventParser``. Raises InvalidAnswer if it is more than may be."""
        self._received += len(data)
        if self._received > MAX_BODY:
            raise InvalidAnswer(f"it sent more than {MAX_BODY:,} bytes")
        return super().feed(data)


class HttpChannel:
    """A server behind a URL, and its session if it has one."""

    def __init__(
        self,
        url: str,
        who_asks: WhoAsks,
        changed: Callable[[], None],
        *,
        outward: bool = False,
        names: AbstractResolver | None = None,
    ) -> None:
        """``changed`` is called when the server says that its list of tools did; ``outward`` and
        ``names`` as for `http_client`."""
        self._outward, self._names = outward, names
        self._url = url
        self._who_asks = who_asks
        self._changed = changed
        self._client: aiohttp.ClientSession | None = None
        self._session: str | None = None
        self._is_forgotten = False
        """True once the server does not know the session any more."""
        self._version: str | None = None
        self._farewells: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> bool:
        """As ``ServerChannel``."""
        return self._client is not None and not self._is_forgotten

    async def open(self) -> None:
        """As ``ServerChannel``. Nothing is sent."""
        self._client = http_client(outward=self._outward, names=self._names)

    async def exchange(self, request: Message, headers: Mapping[str, str], heard: Heard) -> Message:
        """As ``ServerChannel``."""
        number = request["id"]
        try:
            async with answering(await self._post(request, headers)) as response:
                return await self._answer(response, request, heard)
        except asyncio.CancelledError:
            if self._version is not None:
                # The newest revision, which has no handshake, takes the closed stream for it.
                self._say_farewell(cancelled(number))
            raise

    async def notify(self, message: Message, headers: Mapping[str, str]) -> None:
        """As ``ServerChannel``."""
        async with answering(await self._post(message, headers)) as response:
            await self._require_success(response)

    async def close(self) -> None:
        """As ``ServerChannel``."""
        client, self._client = self._client, None
        if client is None:
            return
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=_FAREWELL)
        if self._session is not None and not self._is_forgotten:
            with suppress(NeverSent, Lost, RequestRefused, TimeoutError):
                async with asyncio.timeout(_FAREWELL), answering(self._delete(client)):
                    pass
        await client.close()

    async def _delete(self, client: aiohttp.ClientSession) -> aiohttp.ClientResponse:
        headers = await self._headers({})
        return await client.delete(self._url, headers=headers, allow_redirects=False)

    async def _post(self, message: Message, headers: Mapping[str, str]) -> Awaitable[aiohttp.ClientResponse]:
        if self._client is None:
            raise NotTried("the connection is closed")
        return self._client.post(
            self._url, data=orjson.dumps(message), headers=await self._headers(headers), allow_redirects=False
        )

    async def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        session = {} if self._session is None else {_SESSION: self._session}
        version = {} if self._version is None else {"MCP-Protocol-Version": self._version}
        fixed = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        return {**await self._who_asks(), **fixed, **version, **session, **headers}

    async def _answer(self, response: aiohttp.ClientResponse, request: Message, heard: Heard) -> Message:
        await self._require_success(response)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise InvalidAnswer("it sent something compressed, which was not asked for")
        # What came says what it is: labels are left out, and wrong.
        events = _Events()
        begun = await _beginning(response)
        if begun.startswith((b"{", b"[")) and response.content_type != _STREAM:
            messages = read_messages(await whole(response, begun=begun))
            message = next((each for each in messages if is_answer(each, request["id"])), None)
            if message is None:
                raise InvalidAnswer("it sent the answer to another request")
        elif begun.startswith(b"<") or (not begun and response.content_type != _STREAM):
            raise InvalidAnswer(f"it sent {response.content_type[:100]!r} (HTTP {response.status})")
        else:
            message = await self._followed(response, begun, request["id"], heard, events)
        answer = result_of(message, status=response.status)
        if request["method"] == "initialize":
            self._keep_session(response, answer)
        return answer

    def _keep_session(self, response: aiohttp.ClientResponse, answer: Message) -> None:
        session = response.headers.get(_SESSION)
        if session is not None and not (0 < len(session) <= _LONGEST_SESSION and session.isascii()):
            raise InvalidAnswer("it gave a session a name that no header carries")
        self._session = session
        self._version = str(answer["result"].get("protocolVersion", ""))

    async def _followed(
        self, response: aiohttp.ClientResponse, begun: bytes, number: int, heard: Heard, events: _Events
    ) -> Message:
        """The answer in a stream. A stream with a session may end before it, and go on in another one, which is asked
        for: the request is not sent again."""
        failures = 0
        message = await self._streamed(response, number, heard, events, begun)
        while message is None:
            if self._version is None or not events.last_id or failures >= _RESUMPTIONS:
                raise Lost("the stream ended without an answer")
            seen = events.last_id
            await asyncio.sleep(_RETRY if events.retry is None else min(events.retry, _LONGEST_RETRY))
            message = await self._resumed(number, heard, events)
            failures = 0 if events.last_id != seen else failures + 1
        return message

    async def _resumed(self, number: int, heard: Heard, events: _Events) -> Message | None:
        assert self._client is not None
        assert events.last_id is not None
        headers = await self._headers({"Accept": _STREAM, "Last-Event-ID": events.last_id.decode()})
        events.begin()
        try:
            async with answering(self._client.get(self._url, headers=headers, allow_redirects=False)) as response:
                await self._require_success(response)
                if response.content_type != _STREAM:
                    raise Lost("the stream does not go on")
                return await self._streamed(response, number, heard, events)
        except SessionGone as error:
            # It had taken the request.
            raise Lost(str(error)) from error
        except NeverSent:
            return None
        except RequestRefused as error:
            raise Lost(str(error)) from error

    async def _streamed(
        self, response: aiohttp.ClientResponse, number: int, heard: Heard, events: _Events, piece: bytes = b""
    ) -> Message | None:
        """The answer, or None if the stream ends without it; ``piece`` was read before."""
        while piece := piece or await _next_piece(response):
            for start in range(0, len(piece), _PIECE):
                for message in messages_of(events.feed(piece[start : start + _PIECE])):
                    if is_answer(message, number):
                        return message
                    self._take(message, heard)
                # Whatever comes, others have their turn.
                await asyncio.sleep(0)
            piece = b""
        with suppress(InvalidAnswer):
            # The last event may lack its end; or it is cut off.
            return next((each for each in messages_of(events.feed(b"\n\n")) if is_answer(each, number)), None)
        return None

    def _take(self, message: Message, heard: Heard) -> None:
        """Take in what the server says before its answer."""
        if reply := answer_to(message):
            self._say_farewell(reply)
        if is_change(message):
            self._changed()
        heard(message)

    def _say_farewell(self, message: Message) -> None:
        """Send a message without waiting for its arrival. A server that asks for many of them gets a few."""
        if len(self._farewells) >= _MOST_FAREWELLS:
            return
        task = asyncio.create_task(self._send_late(message))
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def _send_late(self, message: Message) -> None:
        with suppress(*ENDED, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self.notify(message, {})

    async def _require_success(self, response: aiohttp.ClientResponse) -> None:
        """Raise what the status of a response says, unless it says that all is well."""
        status = response.status
        if status < 300:
            return
        if status in (401, 403):
            raise RequestRefused(f"it refused the worker's credentials (HTTP {status})", status=status)
        if status in (429, 503):
            wait = retry_after(response.headers)
            raise NeverSent(f"it asks to wait (HTTP {status})", retry_after=wait, status=status)
        if status < 400:
            raise RequestRefused(f"it sends elsewhere (HTTP {status}), and is not followed", status=status)
        if status == 404 and self._session is not None:
            self._is_forgotten = True
            raise SessionGone("it does not know the session any more (HTTP 404)")
        if response.content_type == "application/json":
            with suppress(InvalidAnswer):
                result_of(read_messages(await whole(response, _ERROR_BODY))[0], status=status)
        if status < 500:
            raise RequestRefused(f"it refused the request (HTTP {status})", status=status)
        raise Lost(f"it failed (HTTP {status})", status=status)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The first piece of a body in which there is something; empty if that is all."""
    received = 0
    while piece := await _next_piece(response):
        received += len(piece)
        if received > MAX_BODY:
            raise InvalidAnswer(f"it sent more than {MAX_BODY:,} bytes")
        if begun := piece.lstrip(b" \t\r\n\xef\xbb\xbf"):
            return begun
    return b""
