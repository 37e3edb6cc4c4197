"""The cost of a step by component: CPU of each process, work and bytes of Redis, messages, and memory of runs there.

What docs/scale.md calculates with, and `bench.simulation.costs`. A step is a call of the model and one of a tool; CPU,
commands, bytes and messages are counted, so that another machine, or a busy one, gets nearly the same but for CPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
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

_TOGETHER: Final = 50
"""Runs at once."""
_TOOLS: Final[dict[str, str]] = {"PALAVER_TOOLS": "bench.tools"}
_AFTERMATH: Final = 0.5
"""Seconds in which what has ended is settled."""
_COLUMNS: Final = (
    "model worker",
    "tools worker",
    "API",
    "Redis",
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


_WAYS: Final = (
    _Way("within the model's step", "calculator"),
    _Way("the same, each step delivered", "calculator", {"PALAVER_IN_PLACE_STEPS": "0"}),
    _Way("a step on a loop", "add_async", {"PALAVER_TOOL_POOL": "loop"}, ("-c", "100")),
    _Way("a step in a child", "add"),
)


async def measure(rounds: int) -> list[Table]:
    """Measure each way, and what is kept of runs."""
    table = Table(
        f"What a step costs, by component ({_TOGETHER} runs at once, {rounds} times)",
        ("a tool call is", *_COLUMNS),
        note="Runs of 21 model calls with 20 tool calls, submitted over HTTP one by one. CPU is ms a step, user and "
        "system, children included. Of Redis: commands with those that scripts call, calls of scripts, deliveries "
        "that are sent, and bytes of its connections, a step.",
    )
    for way in _WAYS:
        table.rows.append((way.name, *await _measured(way, rounds)))
    return [table, await _kept(4 * _TOGETHER)]


async def _measured(way: _Way, rounds: int) -> Sequence[str]:
    environment = _TOOLS | way.environment
    async with Rig() as rig, Redis.from_url(rig.redis.url) as redis:
        worker = rig.start_worker(_TOGETHER, environment, "-E", "-l", "INFO")
        tools = rig.start_tools(environment, "-E", "-l", "INFO", *way.options)
        url, api = await rig.start_api(**environment)
        await rig.workers_ready(worker, tools)
        await _run(rig, url, way.tool, _TOGETHER)
        before = await _Spent.of(redis, worker, tools, api)
        for _ in range(rounds):
            await _run(rig, url, way.tool, _TOGETHER)
        after = await _Spent.of(redis, worker, tools, api)
    steps = rounds * _TOGETHER * CALLS
    return [number(each / steps) for each in after.since(before)]


@dataclass(frozen=True)
class _Spent:
    """Everything that is counted, at a moment."""

    cpu: Sequence[float]
    """ms of each process."""
    work: ServerWork
    scripts: int
    deliveries: int

    @classmethod
    async def of(cls, redis: Redis, *processes: ChildCommand) -> _Spent:
        """What the server and the processes say now."""
        calls = await redis.info("commandstats")
        scripts = sum(calls.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))
        deliveries = calls.get("cmdstat_lpush", {"calls": 0})["calls"]
        cpu = [1e3 * Usage.of(each.pid).cpu for each in processes]
        return cls(cpu, await ServerWork.of(redis), scripts, deliveries)

    def since(self, before: _Spent) -> Sequence[float]:
        """In the order of the columns."""
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


async def _run(rig: Rig, url: str, tool: str, runs: int) -> None:
    run_ids = await asyncio.to_thread(_submitted, url, tool, runs)
    ended = await rig.ended(run_ids)
    if any(run.status != "completed" for run in ended):
        raise BenchError(f"{sum(run.status != 'completed' for run in ended)} of {runs} runs did not complete")
    await asyncio.sleep(_AFTERMATH)


def _submitted(url: str, tool: str, runs: int) -> Sequence[str]:
    """The ids of runs that one client submits, on one connection."""
    agent = {"model": f"fake/{MODEL}", "instructions": INSTRUCTIONS, "tools": [tool], "max_steps": 100}
    body = orjson.dumps({"agent": agent, "input": INPUT})
    connection = HTTPConnection(urlsplit(url).netloc)
    try:
        found = []
        for _ in range(runs):
            connection.request("POST", "/v1/runs", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 202:
                raise BenchError(said[:400].decode())
            found.append(str(orjson.loads(said)["id"]))
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
