"""Requests over HTTP to servers that somebody else runs: no redirects, no cookies, nothing compressed, and no
connection to an address at which clouds keep keys."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from palaver.vocabulary.addresses import is_loopback, never_asked

from .wire import MAX_BODY, InvalidAnswer, Lost, NeverSent

_CONNECT: Final = 10.0
_PIECE: Final = 64 * 1024


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


async def next_piece(response: aiohttp.ClientResponse) -> bytes:
    """The next piece of a body; an empty one if that is all, or it broke off."""
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, OSError):
        return b""


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
