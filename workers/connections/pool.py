"""Pools of connections."""

from __future__ import annotations

import aiohttp
from aiohttp.abc import AbstractResolver

from .response_heads import CountedResponse
from .transport import AiohttpTransport


def open_pool(resolver: AbstractResolver | None = None, *, sent_once: bool = False) -> AiohttpTransport:
    """A pool that looks names up with this ``resolver``. With ``sent_once`` no request is sent twice, and each has a
    connection of its own: on one that was idle, a request that was lost looks like one that was never read."""
    return AiohttpTransport(
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, resolver=resolver, force_close=sent_once),
            # What one conversation is sent must not reach another.
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            response_class=CountedResponse,
            middlewares=(_once,) if sent_once else (),
        )
    )


async def _once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send the request. aiohttp sends those of some methods again, ``DELETE`` among them, when it is disconnected: not
    if the error is of a class that it does not know as one of these.

    Raises:
        aiohttp.ClientConnectionError: it was.
    """
    try:
        return await send(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error)) from error
