"""What a script costs: counted, on a fake server whose Lua tells, or measured, on a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from fakeredis import FakeServer
from redis.asyncio import Redis

from palaver.store import Store
from palaver.store.redis.connection import MOST_ARGUMENTS
from palaver.store.scripting.contracts.declaration import Script
from tests.contract.clock import TurnedRedis

EVERY: Final = 50
"""Instructions of Lua between two counts."""
_OF_A_COMMAND: Final = 60
"""What a command of Redis counts for beside its bytes: about as long as so many instructions."""
_OF_A_BYTE: Final = 0.1


class Meter(Protocol):
    """Says what has been used since it was last asked."""

    async def read(self) -> float: ...


class Counter:
    """Instructions of Lua, commands of Redis and the bytes that go through them and through cjson, weighed.

    The same each time, whatever else the machine does: it has the shape of the time that a script takes, and not its
    length.
    """

    def __init__(self, server: FakeServer) -> None:
        self._work = 0.0
        lua: Any = server._lua_runtime  # type: ignore[attr-defined]  # made with the first script
        tables = lua.globals()
        tables.redis.call = self._weighing(tables.redis.call, _OF_A_COMMAND)
        for name in (b"encode", b"decode"):
            tables.cjson[name] = self._weighing(tables.cjson[name], 0)
        self._instructions: Callable[[], float] = lua.execute(
            f"""
            local seen = 0
            debug.sethook(function() seen = seen + {EVERY} end, '', {EVERY})
            return function() local was = seen; seen = 0; return was end
            """
        )

    def _weighing(self, function: Callable[..., Any], each: float) -> Callable[..., Any]:
        def weighed(*args: Any) -> Any:
            answer = function(*args)
            self._work += each + _OF_A_BYTE * sum(map(_size, (*args, answer)))
            return answer

        return weighed

    async def read(self) -> float:
        """In instructions, about."""
        work, self._work = self._work + self._instructions(), 0.0
        return work


def _size(value: Any) -> int:
    if isinstance(value, bytes):
        return len(value)
    if hasattr(value, "values"):  # a table of Lua
        return sum(map(_size, value.values()))
    return 8


class Commands:
    """Commands of Redis that scripts send."""

    def __init__(self, server: FakeServer) -> None:
        self._sent = 0
        lua: Any = server._lua_runtime  # type: ignore[attr-defined]  # made with the first script
        tables = lua.globals()
        call = tables.redis.call

        def counted(*args: Any) -> Any:
            self._sent += 1
            return call(*args)

        tables.redis.call = counted

    async def read(self) -> float:
        """How many."""
        sent, self._sent = self._sent, 0
        return sent


class Stopwatch:
    """Milliseconds that the server spent in scripts, by its own account."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._spent = 0.0

    async def read(self) -> float:
        """In milliseconds."""
        stats = await self._redis.info("commandstats")
        spent = sum(stats.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in ("eval", "evalsha")) / 1000
        since, self._spent = spent - self._spent, spent
        return float(since)


@dataclass
class Costs:
    """What calls of scripts have cost."""

    of: dict[str, float]
    """The dearest call of each."""
    all_of: dict[str, float]
    """All calls of each together."""

    def note(self, name: str, cost: float) -> None:
        """``name`` was called, and cost that."""
        self.of[name] = max(self.of.get(name, 0.0), cost)
        self.all_of[name] = self.all_of.get(name, 0.0) + cost


def watch(store: Store, meter: Meter) -> Costs:
    """From here on, what each script of ``store`` costs is noted, and that its call fits into a request."""
    costs, scripts = Costs({}, {}), store.scripts
    run, run_each = scripts.run, scripts.run_each

    async def metered(script: Script[Any], answer: Callable[[], Awaitable[Any]]) -> Any:
        words = sum(len(part) for part in script.pack()) + len(("EVALSHA", "its SHA", "number of keys"))
        assert words <= MOST_ARGUMENTS, f"{script.name} is called with {words} words"
        await meter.read()
        found = await answer()
        costs.note(script.name, await meter.read())
        return found

    async def one(script: Script[Any]) -> Any:
        return await metered(script, lambda: run(script))

    async def each(calls: Iterable[Script[Any]], **_: object) -> list[Any]:
        return [await metered(script, partial(_only, run_each, script)) for script in calls]

    scripts.run, scripts.run_each = one, each  # type: ignore[method-assign,assignment]
    return costs


async def _only(run_each: Callable[[Iterable[Script[Any]]], Awaitable[list[Any]]], script: Script[Any]) -> Any:
    return (await run_each([script]))[0]


@asynccontextmanager
async def fake(
    meter: Callable[[FakeServer], Meter] = Counter,
) -> AsyncIterator[tuple[Redis, Callable[[], Meter]]]:
    """A fake server, and what makes its meter."""
    server = FakeServer()
    async with TurnedRedis(server=server) as client:
        # Lua is made with the first script.
        await client.eval("return 1", 0)
        yield client, lambda: meter(server)
