"""TLS to Redis."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Final

from redis.asyncio.connection import RedisSSLContext, SSLConnection

_READ_AGAIN: Final = 60.0
"""Seconds after which certificates are read again: their files may have changed."""


class TlsConnection(SSLConnection):
    """A connection that shares what it knows of certificates. By itself each reads all authorities of the system as it
    connects, 40 ms in which the loop stands still: for Sentinels that have to answer in time, or a pool that fills."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        tls = tuple(sorted((name, value) for name, value in options.items() if name.startswith("ssl_")))
        self.ssl_context = _certificates(tls, time.monotonic() // _READ_AGAIN)


@lru_cache(maxsize=4)
def _certificates(tls: tuple[tuple[str, Any], ...], _: float) -> RedisSSLContext:
    return SSLConnection(**dict(tls)).ssl_context
