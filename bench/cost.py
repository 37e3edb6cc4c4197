"""The cost of a step by component: CPU of each process, work and bytes of Redis, messages, and memory of runs there.

What docs/scale.md calculates with, and `bench.simulation.costs`. A step is a call of the model and one of a tool; CPU,
commands, bytes and messages are counted, so that another machine, or a busy one, gets nearly the same but for CPU.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection
from statistics import median
from typing import Final
from urllib.parse import urlsplit

import orjson
from redis.asyncio import Redis

from bench.asked import BenchError
from bench.conversation import CALLS, INPUT, INSTRUCTIONS, MODEL
from bench.report import Table, number
from bench.rig import Rig
from bench.server_work import ServerWork
from bench.usage import Usage
from features.stack.child import ChildCommand
from palaver.store.fleet.fleet import WorkerReport

_TOGETHER: Final = 50
"""Runs at once."""
_TOOLS: Final[dict[str, str]] = {"PALAVER_TOOLS": "bench.tools"}
_REQUESTS: Final = 300
_WITHIN: Final = 120.0
_AFTERMATH: Final = 0.5
"""Seconds in which what has ended is settled."""
_COLUMNS: Final = (
    "model worker",
    "tools worker",
    "API",
    "Redis",
    "steps/s",
    "commands, one run",
    "commands",
    "scripts",
    "deliveries",
    "KB in",
    "KB out",
)


@dataclass(frozen=True)
class _Way:
    name: str
    tool: str
    environment: dict[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    has_worker: bool = True
    """There is a worker for tools alone."""


_WAYS: Final = (
    _Way("within the model's step", "calculator"),
    _Way("the same, each step delivered", "calculator", {"PALAVER_IN_PLACE_STEPS": "0"}),
    _Way("a step on the loop of the model's", "add_async", has_worker=False),
    _Way("a step on a loop", "add_async", {"PALAVER_TOOL_POOL": "loop"}, ("-c", "100")),
    _Way("a step in a child", "add"),
)


async def measure(rounds: int) -> list[Table]:
    """Measure each way, what is asked of the API, and what is kept of runs."""
    return [*await step_and_requests(rounds), await _kept(4 * _TOGETHER)]


async def step_and_requests(rounds: int) -> list[Table]:
    """Measure each way, in turns, and what is asked of the API."""
    async with AsyncExitStack() as opened:
        stacks = [await _Stack.of(way, opened) for way in _WAYS]
        for stack in stacks:
            await stack.run(_TOGETHER)
        for _ in range(rounds):
            for stack in stacks:
                await stack.round()
        table = Table(
            f"What a step costs, by component ({_TOGETHER} runs at once, {rounds} times)",
            ("a tool call is", *_COLUMNS),
            note="Runs of 21 model calls with 20 tool calls, submitted over HTTP one by one; each way has a stack of "
            "its own, and they take turns. CPU is ms a step, user and system, children included. Of Redis: commands "
            "with those that scripts call, also for one run alone, calls of scripts, deliveries that are sent, and "
            "bytes of its connections, a step.",
        )
        table.rows += [(stack.way.name, *stack.cells()) for stack in stacks]
    return [table, await _requests()]


class _Stack:
    """A way with its processes, and what steps have cost there."""

    def __init__(self, way: _Way, rig: Rig, redis: Redis, url: str, processes: Sequence[ChildCommand | None]) -> None:
        self.way = way
        self.rig = rig
        self.redis = redis
        self.url = url
        self.processes = processes
        """Model worker, tools worker, API."""
        self._spent: list[Sequence[float]] = []
        self._alone: list[float] = []

    @classmethod
    async def of(cls, way: _Way, opened: AsyncExitStack) -> _Stack:
        """Start one; it ends with ``opened``."""
        environment = _TOOLS | way.environment
        rig = await opened.enter_async_context(Rig())
        redis = await opened.enter_async_context(Redis.from_url(rig.redis.url))
        options = ("-E", "-l", "INFO") if way.has_worker else ("-E", "-l", "INFO", "-Q", "model,tools")
        worker = rig.start_worker(_TOGETHER, environment, *options)
        tools = rig.start_tools(environment, "-E", "-l", "INFO", *way.options) if way.has_worker else None
        url, api = await rig.start_api(**environment)
        await rig.workers_ready(worker, *([tools] if tools else []))
        return cls(way, rig, redis, url, (worker, tools, api))

    async def round(self) -> None:
        """One run alone, and many at once."""
        before = await self.spent()
        await self.run(1)
        self._alone.append((await self.spent()).work.commands - before.work.commands)
        before = await self.spent()
        seconds = await self.run(_TOGETHER)
        cpu_and_redis = (await self.spent()).since(before)
        self._spent.append([*cpu_and_redis, seconds])

    async def spent(self) -> _Spent:
        """What was spent up to now."""
        return await _Spent.of(self.redis, self.processes)

    async def run(self, runs: int) -> float:
        """So many at once; the seconds until the last call of a model has ended, without asking Redis meanwhile."""
        self.rig.asked.forget()
        begun = time.monotonic()
        run_ids = await asyncio.to_thread(_submitted, self.url, self.way.tool, runs)
        await self.rig.asked.ended(runs * CALLS, within=_WITHIN, what=f"{runs} runs, {self.way.name}")
        seconds = time.monotonic() - begun
        await asyncio.sleep(_AFTERMATH)
        ended = await self.rig.ended(run_ids)
        if any(run.status != "completed" for run in ended):
            raise BenchError(f"{sum(run.status != 'completed' for run in ended)} of {runs} runs did not complete")
        return seconds

    def cells(self) -> Sequence[str]:
        """In the order of the columns, a step."""
        steps = _TOGETHER * CALLS
        *spent, seconds = (median(each) for each in zip(*self._spent, strict=True))
        a_step = [each / steps for each in spent]
        return [number(each) for each in (*a_step[:4], steps / seconds, median(self._alone) / CALLS, *a_step[4:])]


async def _requests() -> Table:
    """What the API and Redis spend for a request, where no worker takes what is submitted."""
    table = Table(
        f"What a request costs ({_REQUESTS} times, on one connection)",
        ("", "API", "Redis", "commands"),
        note="CPU is ms a request, user and system; commands of Redis with those that scripts call.",
    )
    async with Rig() as rig, Redis.from_url(rig.redis.url) as redis:
        url, api = await rig.start_api(**_TOOLS)
        # As if a worker had been there: where no provider is known yet, each submit asks for them.
        known = WorkerReport(
            id="bench/1", queues=("model",), in_flight=0, capacity=1, draining=False, providers=("fake",)
        )
        await rig.store.fleet.report(known)
        (run_id,) = await asyncio.to_thread(_submitted, url, "calculator", 1)
        asked: Sequence[tuple[str, str, str, bytes | None]] = (
            ("status of a run", "GET", f"/v1/runs/{run_id}", None),
            ("submit of a run", "POST", "/v1/runs", _body("calculator")),
        )
        for name, method, path, body in asked:
            await asyncio.to_thread(_asked, url, method, path, body, 10)
            before = await _Spent.of(redis, [api])
            await asyncio.to_thread(_asked, url, method, path, body, _REQUESTS)
            of_api, of_redis, commands, *_ = (await _Spent.of(redis, [api])).since(before)
            table.rows.append((name, *(number(each / _REQUESTS) for each in (of_api, of_redis, commands))))
    return table


@dataclass(frozen=True)
class _Spent:
    """Everything that is counted, at a moment."""

    cpu: Sequence[float]
    """ms of each process."""
    work: ServerWork
    scripts: int
    deliveries: int

    @classmethod
    async def of(cls, redis: Redis, processes: Sequence[ChildCommand | None]) -> _Spent:
        """What the server and the processes say now."""
        calls = await redis.info("commandstats")
        scripts = sum(calls.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))
        deliveries = calls.get("cmdstat_lpush", {"calls": 0})["calls"]
        cpu = [1e3 * Usage.of(each.pid).cpu if each else 0.0 for each in processes]
        return cls(cpu, await ServerWork.of(redis), scripts, deliveries)

    def since(self, before: _Spent) -> Sequence[float]:
        """CPU of the processes and of Redis, and what else of Redis there is."""
        work = self.work - before.work
        return (
            *(late - early for late, early in zip(self.cpu, before.cpu, strict=True)),
            1e3 * work.cpu,
            work.commands,
            self.scripts - before.scripts,
            self.deliveries - before.deliveries,
            work.received / 1e3,
            work.sent / 1e3,
        )


def _submitted(url: str, tool: str, runs: int) -> Sequence[str]:
    """The ids of runs that one client submits, on one connection."""
    return [str(orjson.loads(said)["id"]) for said in _asked(url, "POST", "/v1/runs", _body(tool), runs)]


def _body(tool: str) -> bytes:
    agent = {"model": f"fake/{MODEL}", "instructions": INSTRUCTIONS, "tools": [tool], "max_steps": 100}
    return orjson.dumps({"agent": agent, "input": INPUT})


def _asked(url: str, method: str, path: str, body: bytes | None, times: int) -> Sequence[bytes]:
    """The answers to a request that one client makes so many times, on one connection."""
    connection = HTTPConnection(urlsplit(url).netloc)
    try:
        found = []
        for _ in range(times):
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status not in (200, 202):
                raise BenchError(said[:400].decode())
            found.append(said)
        return found
    finally:
        connection.close()


async def _kept(runs: int) -> Table:
    """Memory of Redis for a run that waits for a worker, and for one that has ended."""
    table = Table(
        f"What a run takes in Redis ({runs} of them)",
        ("", "KB a run"),
        note="Of the run of 21 model calls with inline tools: as it waits for a worker, and once it has ended, with "
        "its feed and without.",
    )
    async with Rig() as rig, Redis.from_url(rig.redis.url) as redis:
        url, _ = await rig.start_api(**_TOOLS)
        # The first one brings what is there once.
        first = await asyncio.to_thread(_submitted, url, "calculator", 1)
        empty = await _memory(redis)
        run_ids = await asyncio.to_thread(_submitted, url, "calculator", runs)
        waiting = await _memory(redis)
        await rig.workers_ready(rig.start_worker(_TOGETHER, _TOOLS))
        await rig.ended([*first, *run_ids])
        await asyncio.sleep(_AFTERMATH)
        ended = await _memory(redis)
        feeds = [key async for key in redis.scan_iter("*:feed:*", count=1000)]
        await redis.unlink(*feeds)
        left = await _memory(redis)
    for name, memory in (("waiting for a worker", waiting), ("ended, with its feed", ended), ("without", left)):
        table.rows.append((name, number((memory - empty) / runs / 1e3)))
    return table


async def _memory(redis: Redis) -> int:
    await redis.execute_command("MEMORY", "PURGE")
    return int((await redis.info("memory"))["used_memory"])
