"""Streamable HTTP: each message is a POST of its own, answered with JSON or with a stream of events that ends with the
answer.

It follows no redirect, keeps no cookies, takes nothing compressed, and connects to no address at which clouds keep
keys.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from palaver.errors.headers import retry_after
from palaver.vocabulary.addresses import is_loopback, never_asked

from .sse import EventReader
from .wire import (
    MAX_BODY,
    Heard,
    InvalidAnswer,
    Lost,
    Message,
    NeverSent,
    Refused,
    RpcError,
    SessionGone,
    answer_to,
    cancelled,
    is_answer,
    read_message,
    result_of,
)

Credentials = Callable[[], Awaitable[Mapping[str, str]]]
"""The headers that say who asks."""

_CONNECT: Final = 10.0
_FAREWELL: Final = 1.0
"""Seconds for a message to a server that nobody waits for."""
_PIECE: Final = 64 * 1024
_SESSION: Final = "Mcp-Session-Id"
_LONGEST_SESSION: Final = 1024
_ERROR_BODY: Final = 64 * 1024


class _Resolver(AbstractResolver):
    """Leaves out addresses at which nothing is ever asked, whoever names them."""

    def __init__(self) -> None:
        self._names = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of ``host``. Raises OSError if none is left."""
        found = await self._names.resolve(host, port, family)
        allowed = [address for address in found if not never_asked(address["host"], loopback=is_loopback(host))]
        if not allowed:
            raise OSError("its name leads to an address at which nothing is asked")
        return allowed

    async def close(self) -> None:
        """Look nothing up any more."""
        await self._names.close()


def http_client() -> aiohttp.ClientSession:
    """A client for servers of tools."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=_Resolver(), limit=0),
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
        raise NeverSent(f"no connection: {type(error).__name__}") from error
    except aiohttp.ClientResponseError as error:
        raise Lost("it answered with what is no HTTP") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Lost(f"the connection broke: {type(error).__name__}") from error


async def whole(response: aiohttp.ClientResponse, most: int = MAX_BODY) -> bytes:
    """The body of a response.

    Raises:
        InvalidAnswer: it is longer than ``most`` bytes.
    """
    body = bytearray()
    while piece := await response.content.read(_PIECE):
        body += piece
        if len(body) > most:
            raise InvalidAnswer(f"it sent more than {most:,} bytes")
    return bytes(body)


class HttpChannel:
    """A server behind a URL, and its session if it has one."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self._url = url
        self._credentials = credentials
        self._client: aiohttp.ClientSession | None = None
        self._session: str | None = None
        self._version: str | None = None
        self._farewells: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> bool:
        """As ``Channel``."""
        return self._client is not None

    async def open(self) -> None:
        """As ``Channel``. Nothing is sent."""
        self._client = http_client()

    async def exchange(self, request: Message, headers: Mapping[str, str], heard: Heard) -> Message:
        """As ``Channel``."""
        number = request["id"]
        try:
            async with answering(await self._post(request, headers)) as response:
                return await self._answer(response, request, heard)
        except asyncio.CancelledError:
            if self._session is not None and request["method"] != "initialize":
                # A revision without sessions takes the closed stream for it.
                self._say_farewell(cancelled(number))
            raise

    async def notify(self, message: Message, headers: Mapping[str, str]) -> None:
        """As ``Channel``."""
        async with answering(await self._post(message, headers)) as response:
            await self._require_success(response)

    async def close(self) -> None:
        """As ``Channel``."""
        client, self._client = self._client, None
        if client is None:
            return
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=_FAREWELL)
        if self._session is not None:
            with suppress(NeverSent, Lost, Refused, TimeoutError):
                async with asyncio.timeout(_FAREWELL), answering(self._delete(client)):
                    pass
        await client.close()

    async def _delete(self, client: aiohttp.ClientSession) -> aiohttp.ClientResponse:
        headers = await self._headers({})
        return await client.delete(self._url, headers=headers, allow_redirects=False)

    async def _post(self, message: Message, headers: Mapping[str, str]) -> Awaitable[aiohttp.ClientResponse]:
        if self._client is None:
            raise NeverSent("the connection is closed")
        return self._client.post(
            self._url, data=orjson.dumps(message), headers=await self._headers(headers), allow_redirects=False
        )

    async def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        session = {} if self._session is None else {_SESSION: self._session}
        version = {} if self._version is None else {"MCP-Protocol-Version": self._version}
        fixed = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        return {**await self._credentials(), **fixed, **version, **session, **headers}

    async def _answer(self, response: aiohttp.ClientResponse, request: Message, heard: Heard) -> Message:
        await self._require_success(response)
        kind = response.content_type
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise InvalidAnswer("it sent something compressed, which nobody asked for")
        if kind == "application/json":
            message = read_message(await whole(response))
            if not is_answer(message, request["id"]):
                raise InvalidAnswer("it sent the answer to another request")
        elif kind == "text/event-stream":
            message = await self._streamed(response, request["id"], heard)
        else:
            raise InvalidAnswer(f"it sent {kind[:100]!r} (HTTP {response.status})")
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

    async def _streamed(self, response: aiohttp.ClientResponse, number: int, heard: Heard) -> Message:
        events = EventReader()
        while piece := await response.content.readany():
            for data in events.add(piece):
                message = read_message(data)
                if is_answer(message, number):
                    return message
                if reply := answer_to(message):
                    self._say_farewell(reply)
                heard(message)
        raise Lost("the stream ended without an answer")

    def _say_farewell(self, message: Message) -> None:
        """Send a message whose arrival nobody waits for."""
        task = asyncio.create_task(self._send_late(message))
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def _send_late(self, message: Message) -> None:
        with suppress(NeverSent, Refused, Lost, InvalidAnswer, RpcError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self.notify(message, {})

    async def _require_success(self, response: aiohttp.ClientResponse) -> None:
        """Raise what the status of a response says, unless it says that all is well."""
        status = response.status
        if status < 300:
            return
        if status in (401, 403):
            raise Refused(f"it refused the worker's credentials (HTTP {status})", status=status)
        if status in (429, 503):
            raise NeverSent(f"it asks to wait (HTTP {status})", retry_after=retry_after(response.headers))
        if status < 400:
            raise Refused(f"it sends elsewhere (HTTP {status}), where nobody follows", status=status)
        if status == 404 and self._session is not None:
            self._session = None
            raise SessionGone("it does not know the session any more (HTTP 404)")
        if response.content_type == "application/json":
            with suppress(InvalidAnswer):
                result_of(read_message(await whole(response, _ERROR_BODY)), status=status)
        if status < 500:
            raise Refused(f"it refused the request (HTTP {status})", status=status)
        raise Lost(f"it failed (HTTP {status})")
