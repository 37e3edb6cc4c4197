"""A store with a clock that a test turns: fakeredis, which reads the time from a module."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from fakeredis import FakeAsyncRedis, FakeServer, _helpers
from fakeredis.commands_mixins import server_mixin

START: Final = 1_000_000.0
_FIRST: Final = "#!lua "
"""The first line of some scripts, which Redis knows, and fakeredis only of functions."""


class Clock:
    """Stands in for the module ``time`` that fakeredis reads its clock from."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def time(self) -> float:
        return self.now


@contextmanager
def turned_clock(at: float = START) -> Iterator[Clock]:
    """The time in fakeredis, from a Unix time on."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(at)
        patch.setattr(server_mixin, "time", clock)
        patch.setattr(_helpers, "time", clock)
        yield clock


class TurnedRedis(FakeAsyncRedis):
    """A client of fakeredis that has it run each script, whatever its first line."""

    async def eval(self, script: Any, numkeys: int, *keys_and_args: Any) -> Any:
        """As Redis does."""
        return await self.evalsha(await self.script_load(script), numkeys, *keys_and_args)

    async def script_load(self, script: Any) -> Any:
        """As Redis does."""
        sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        text = "--" + script if script.startswith(_FIRST) else script
        server: FakeServer = self.connection_pool.connection_kwargs["server"]
        server.script_cache[sha.encode()] = text.encode()
        return sha


class TurnedDatabase:
    """Such a store, in the place of a `tests.store_server.Database`."""

    def __init__(self) -> None:
        self._server = FakeServer()

    def client(self, kind: type[Any] = TurnedRedis) -> Any:
        """Another client of it."""
        return kind(server=self._server)

    @property
    def connected(self) -> bool:
        """Whether it can be reached."""
        return bool(self._server.connected)

    @connected.setter
    def connected(self, connected: bool) -> None:
        self._server.connected = connected
