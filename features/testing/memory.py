"""A store in memory, on a fakeredis of its own, and the clock that it reads. Fakeredis runs the scripts of the store in
Lua 5.1, as Redis does."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Final, cast

from fakeredis import FakeServer
from fakeredis.aioredis import FakeAsyncRedisConnection, FakeRedis

import_module("lupa")  # without it fakeredis has no scripts, and does not say so

_FIRST: Final = b"#!lua "
"""The first line of some scripts, which Redis knows, and fakeredis only of functions."""

_Database: Any = type(FakeServer().dbs[0])


class Clock:
    """The time of the store, which is that of the machine and what was skipped. It moves what the engine goes by:
    retries, cool-downs, approvals, deadlines, retention. It does not move `time` and `datetime` of Python."""

    def __init__(self) -> None:
        self.skipped = 0.0
        """Seconds that were skipped so far."""

    @property
    def now(self) -> datetime:
        """The present; UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    def time(self) -> float:
        """The present, in seconds since 1970."""
        return time.time() + self.skipped

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0) -> None:
        """Skip so much time. What came due meanwhile happens when a run goes on.

        Raises:
            ValueError: that would turn it back.
        """
        more = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds()
        if more < 0:
            raise ValueError("the clock goes forward only")
        self.skipped += more


class TimedServer(FakeServer):
    """A server with a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.dbs = defaultdict(lambda: TimedDatabase(self))


class TimedDatabase(_Database):  # type: ignore[misc]
    """A database, whose keys expire by the clock of its server."""

    def __init__(self, server: TimedServer) -> None:
        self._server = server
        super().__init__(server.lock)

    @property
    def time(self) -> float:
        return self._server.clock.time()

    @time.setter
    def time(self, now: float) -> None:
        """Leave it: fakeredis sets the time of the machine with each command."""


class TimedConnection(FakeAsyncRedisConnection):
    """A connection to such a server, which takes every script."""

    async def _connect(self) -> None:
        await super()._connect()
        socket, server = cast(Any, self._sock), cast(TimedServer, self._server)
        run = socket.eval

        def evaluate(script: bytes, *keys_and_args: Any) -> Any:
            server.script_cache[hashlib.sha1(script, usedforsecurity=False).hexdigest().encode()] = script
            return run(b"--" + script if script.startswith(_FIRST) else script, *keys_and_args)

        def tell_time() -> list[bytes]:
            seconds, micros = divmod(round(server.clock.time() * 1_000_000), 1_000_000)
            return [b"%d" % seconds, b"%d" % micros]

        # Commands are found as attributes of their socket.
        socket.eval, socket.time = evaluate, tell_time


_idle: Final[list[TimedServer]] = []
"""Servers that no test has any more. Each has a Lua of its own, which Python cannot free."""


def connect(clock: Clock) -> FakeRedis:
    """Return a client of a server that has nothing and reads this clock. It is to be released."""
    server = _idle.pop() if _idle else TimedServer()
    server.clock = clock
    return FakeRedis(server=server, connection_class=TimedConnection)


def release(redis: FakeRedis) -> None:
    """Let the next test have its server."""
    server: TimedServer = redis.connection_pool.connection_kwargs["server"]
    # It would keep them, and they what they have seen.
    server.sockets.clear()
    server.dbs.clear()
    _idle.append(server)
