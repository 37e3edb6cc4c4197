"""Requests over HTTP to servers that somebody else runs: no redirects, no cookies, nothing compressed, and no
connection to an address at which clouds keep keys."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver

from palaver.errors import ConfigurationError

from ...connections.guarded_resolver import GuardedResolver
from .wire import MAX_BODY, InvalidAnswer, Lost, NeverSent

_CONNECT: Final = 10.0
PIECE: Final = 64 * 1024
"""Bytes of a body that are looked at in one go."""


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


async def next_piece(response: aiohttp.ClientResponse) -> bytes:
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
    while piece := await response.content.read(PIECE):
        body += piece
        if len(body) > most:
            raise InvalidAnswer(f"it sent more than {most:,} bytes")
    return bytes(body)
