"""TLS to Redis."""

from __future__ import annotations

import socket
import ssl
import time
from functools import lru_cache
from typing import Any, Final

from redis import connection as blocking
from redis.asyncio.connection import RedisSSLContext, SSLConnection

_READ_AGAIN: Final = 60.0
"""Seconds after which certificates are read again: their files may have changed."""


class TlsConnection(SSLConnection):
    """A connection that shares what it knows of certificates. By itself each reads all authorities of the system as it
    connects, 40 ms in which the loop stands still: for Sentinels that have to answer in time, or a pool that fills."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context = _shared(_tls_among(options))


class ThreadTlsConnection(blocking.SSLConnection):
    """A thread's connection that shares it as well. Sentinels are asked for each connection, several of them while the
    primary is away: a process that tried to connect did little but read authorities then."""

    def __init__(self, **options: Any) -> None:
        self._tls = _tls_among(options)
        super().__init__(**options)

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
        return _shared(self._tls).get().wrap_socket(sock, server_hostname=self.host)


def _tls_among(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, value) for name, value in options.items() if name.startswith("ssl_")))


def _shared(tls: tuple[tuple[str, Any], ...]) -> RedisSSLContext:
    return _certificates(tls, time.monotonic() // _READ_AGAIN)


@lru_cache(maxsize=4)
def _certificates(tls: tuple[tuple[str, Any], ...], _: float) -> RedisSSLContext:
    return SSLConnection(**dict(tls)).ssl_context
