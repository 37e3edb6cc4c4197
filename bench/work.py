"""What a run costs, by what it does: CPU of each process, Redis's work, and what stays of it in memory and on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis

from bench.conversation import INSTRUCTIONS
from bench.report import Table
from bench.rig import Rig
from bench.usage import Usage
from features.stack.child import ChildCommand
from palaver.store.redis import keys

_TOKENS: Final = 1000
_AFTERMATH: Final = 0.5
"""Seconds in which what has ended is settled, and the server has written its file."""


@dataclass(frozen=True)
class Work:
    """Runs of one kind."""

    name: str
    model: str
    steps: int
    """Model calls and tool calls of each."""
    runs: int
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """Everything that is counted, at a moment."""

    cpu: tuple[float, ...]
    """Seconds of each process."""
    scripts: int
    commands: int
    memory: int
    file: int

    @classmethod
    async def of(cls, redis: Redis, pids: Sequence[int]) -> Reading:
        """What the server and the processes say now."""
        await redis.execute_command("MEMORY", "PURGE")
        said = await redis.info("all")
        scripts = sum(said.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
        cpu = tuple(Usage.of(pid).cpu for pid in pids)
        return cls(cpu, scripts, said["total_commands_processed"], said["used_memory"], said["aof_current_size"])


def kinds(scale: int) -> list[Work]:
    """What is measured; `scale` times 25 of the larger runs."""
    return [
        Work("1 model call", "tokens-20", 1, 200 * scale),
        Work("21 model calls, 20 inline tool calls", "tool-20", 41, 25 * scale, ("calculator",)),
        Work("21 model calls, 20 tool calls in a child", "tool-20", 41, 25 * scale, ("add",)),
        Work(f"1 model call, streamed in {_TOKENS:,} pieces", f"tokens-{_TOKENS}+rate-200", 1, 25 * scale),
    ]


async def measure(scale: int) -> list[Table]:
    """Measure each kind of work, one after the other."""
    cpu = Table(
        "What a run costs while it runs",
        ("a run of", "worker, CPU ms", "tools, CPU ms", "Redis, CPU ms", "CPU ms a step", "scripts", "commands"),
        note="CPU of the process, user and system. A step is a model call or a tool call; CPU a step is of all "
        "three together. Commands of Redis include those that scripts call. The workers send events for Flower.",
    )
    kept = Table(
        "What stays of a run",
        ("a run of", "KB with its feed", "KB without", "KB of the AOF", "log, bytes an entry", "feed, bytes an event"),
        note="Memory of Redis for a run in a conversation of its own, until its feed goes "
        "(`PALAVER_FEED_RETENTION`) and from then on (`PALAVER_RETENTION`). The AOF as it grows, before it is "
        "rewritten. An entry of the log is a message, a change of status or an outcome.",
    )
    async with Rig() as rig, Redis.from_url(rig.redis.url, decode_responses=True) as redis:
        worker = rig.start_worker(200, {"PALAVER_TOOLS": "bench.tools"}, "-E")
        tools = rig.start_tools({"PALAVER_TOOLS": "bench.tools"}, "-E")
        await rig.workers_ready(worker)
        for work in kinds(scale):
            await _done(rig, work, 10)
            costs, stays = await _measured(rig, redis, work, (worker, tools))
            cpu.rows.append((work.name, *costs))
            kept.rows.append((work.name, *stays))
    return [cpu, kept]


async def _done(rig: Rig, work: Work, runs: int) -> list[str]:
    """So many runs of it, ended."""
    submitted = [await rig.submit(work.model, tools=work.tools, instructions=INSTRUCTIONS) for _ in range(runs)]
    await rig.ended(submitted)
    await asyncio.sleep(_AFTERMATH)
    return submitted


async def _measured(
    rig: Rig, redis: Redis, work: Work, workers: Sequence[ChildCommand]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    pids = [*(child.pid for child in workers), rig.redis.pid]
    before = await Reading.of(redis, pids)
    runs = await _done(rig, work, work.runs)
    after = await Reading.of(redis, pids)
    last = await rig.store.runs.get(runs[-1])
    log, feed = await _each(redis, keys.log(last.conversation_id)), await _each(redis, keys.feed(last.id))
    for run_id in runs:
        await redis.delete(keys.feed(run_id))
    left = await Reading.of(redis, pids)
    spent = [1e3 * (late - early) / work.runs for late, early in zip(after.cpu, before.cpu, strict=True)]
    costs = (
        *(f"{each:.1f}" for each in spent),
        f"{sum(spent) / work.steps:.2f}",
        f"{(after.scripts - before.scripts) / work.runs:.0f}",
        f"{(after.commands - before.commands) / work.runs:.0f}",
    )
    stays = (
        f"{(after.memory - before.memory) / work.runs / 1e3:.1f}",
        f"{(left.memory - before.memory) / work.runs / 1e3:.1f}",
        f"{(after.file - before.file) / work.runs / 1e3:.1f}",
        f"{log:.0f}",
        f"{feed:.0f}",
    )
    return costs, stays


async def _each(redis: Redis, stream: str) -> float:
    """Bytes of memory for each of its entries."""
    return int(await redis.memory_usage(stream, samples=0) or 0) / int(await redis.xlen(stream))
