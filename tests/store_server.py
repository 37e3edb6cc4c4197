"""A real server for units that need a store: one for each process of the suite, and in it a database for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from features.stack.redis_server import RedisServer

_DATABASES: Final = 64
"""More than any test has at a time."""
_numbers: Final = itertools.cycle(range(_DATABASES))
_running: list[tuple[RedisServer, redis.Redis]] = []
"""The server of this process and a connection to it, once a test has asked for it."""


class Database:
    """A database that is empty at first."""

    def __init__(self) -> None:
        server, self._admin = _started()
        self._port = server.port
        self._number = next(_numbers)
        self._connected = True
        self._admin.execute_command("SELECT", self._number)
        self._admin.flushdb()

    def client(self, kind: type[Any] = Redis) -> Any:
        """Another client of it, which waits for its answers and tries nothing again."""
        return kind(port=self._port, db=self._number, retry=Retry(NoBackoff(), 0), socket_timeout=None)

    @property
    def connected(self) -> bool:
        """Whether the server can be reached. Without it, all connections are gone, and new ones are refused."""
        return self._connected

    @connected.setter
    def connected(self, connected: bool) -> None:
        if connected is self._connected:
            return
        self._connected = connected
        self._admin.config_set("port", self._port if connected else 0)
        if not connected:
            self._admin.client_kill_filter(_type="normal", skipme=True)
            self._admin.client_kill_filter(_type="pubsub")


def _started() -> tuple[RedisServer, redis.Redis]:
    if not _running:
        server = RedisServer(options={"appendonly": "no", "databases": str(_DATABASES)})
        server.start()
        _running.append((server, redis.Redis(port=server.port, single_connection_client=True)))
    return _running[0]


@contextmanager
def ended() -> Iterator[None]:
    """Behind the block, the server of this process has ended."""
    yield
    for server, admin in _running:
        admin.close()
        server.close()
    _running.clear()
