"""httpx's transport on aiohttp's connections.

httpx's own pool scans all its connections for each request: 10 to 14 ms of CPU with 500 in flight.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Final

import aiohttp
import httpx
from multidict import CIMultiDict
from yarl import URL

_PIECE: Final = 16 * 1024
"""Bytes of an answer that are handed over at once, at most."""
_NOT_CONNECTED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_AS_HTTPX: Final[tuple[tuple[type[Exception], type[httpx.RequestError]], ...]] = (
    (aiohttp.SocketTimeoutError, httpx.ReadTimeout),
    (aiohttp.ServerTimeoutError, httpx.ConnectTimeout),
    (aiohttp.ClientConnectionError, httpx.ConnectError),
    (aiohttp.ClientPayloadError, httpx.ReadError),
    (aiohttp.NonHttpUrlClientError, httpx.UnsupportedProtocol),
    (aiohttp.InvalidUrlClientError, httpx.UnsupportedProtocol),
)
"""The first that an error of aiohttp's belongs to counts. What is known more precisely, `classify` reads in its
cause."""


@lru_cache(maxsize=1000)
def _url(text: str) -> URL:
    """The URL as it is: yarl's own way of writing it decodes ``%3B``, which ends a part of a path for some servers."""
    return URL(text, encoded=True)


@lru_cache(maxsize=100)
def _timeout(connect: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(sock_connect=connect)


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Sends requests over a session of aiohttp, their bodies in one piece. It follows no redirects, and of the timeouts
    it has that for connecting alone."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and wait for the head of its answer.

        Raises:
            httpx.RequestError: as it is with httpx's own transport; its cause is aiohttp's error.
            aiohttp.ClientResponseError: what came is no HTTP.
        """
        headers = CIMultiDict([(name.decode("ascii"), value.decode("latin-1")) for name, value in request.headers.raw])
        url = _url(str(request.url))
        try:
            response = await self._session.request(
                request.method,
                url,
                headers=headers,
                data=await request.aread() or None,
                timeout=_timeout(request.extensions["timeout"]["connect"]),
                allow_redirects=False,
                auto_decompress=False,
            )
        except aiohttp.ClientError as error:
            if isinstance(error, _NOT_CONNECTED):
                self._forget_address(url)
            if (known := _as_httpx(error)) is None:
                raise
            raise known from error
        return httpx.Response(
            response.status, headers=response.raw_headers, stream=ResponseStream(response), request=request
        )

    def _forget_address(self, url: URL) -> None:
        """Look its name up anew the next time: it may lead elsewhere by now."""
        if isinstance(self._session.connector, aiohttp.TCPConnector):
            self._session.connector.clear_dns_cache(url.raw_host, url.port)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


class ResponseStream(httpx.AsyncByteStream):
    """The body of an answer, as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._content = response.content

    @property
    def ended(self) -> bool:
        """True if all of it has come, and was read."""
        return self._content.at_eof()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """The next piece.

        Raises:
            httpx.RequestError: it broke off.
        """
        try:
            piece = await self._content.read(_PIECE)
        except aiohttp.ClientError as error:
            if (known := _as_httpx(error)) is None:
                raise
            raise known from error
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Take no more of it. Its connection is closed, unless it has ended: then that is free already."""
        if not self._response.closed:
            self._response.release()
            await self._response.wait_for_close()


def _as_httpx(error: aiohttp.ClientError) -> httpx.RequestError | None:
    return next((ours(str(error)) for theirs, ours in _AS_HTTPX if isinstance(error, theirs)), None)
