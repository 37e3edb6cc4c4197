"""What a tool call costs as a part of the model's step, as a step of its own on a loop, the model's or another one, and
as one in a child.

Each way has a Redis, a model server and workers of its own, and they take short turns, so that whatever else the
machine does meets all of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from bench.conversation import INSTRUCTIONS
from bench.report import Table
from bench.rig import Rig
from bench.usage import Usage
from features.stack.child import ChildCommand

_MODEL: Final = "tool-20"
_STEPS: Final = 20
"""Of a run: a call of the model and a call of a tool, together."""
_TOGETHER: Final = 50
"""Runs at once."""
_TOOLS: Final = {"PALAVER_TOOLS": "bench.tools"}


@dataclass
class _Way:
    name: str
    tool: str
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    has_worker: bool = True
    """There is a worker for tools alone."""
    alone: list[float] = field(default_factory=list)
    """ms a step of one run, in each round."""
    cpu: list[tuple[float, ...]] = field(default_factory=list)
    """CPU ms a step: model worker, tools worker, Redis."""


def _ways() -> list[_Way]:
    return [
        _Way("within the model's step", "calculator"),
        _Way("a step on the loop of the model's", "add_async", has_worker=False),
        _Way("a step on a loop", "add_async", {"PALAVER_TOOL_POOL": "loop"}, ("-c", "100")),
        _Way("a step in a child", "add"),
    ]


async def measure(rounds: int) -> list[Table]:
    """Measure all of them, round by round."""
    ways = _ways()
    table = Table(
        "What a tool call costs",
        ("a tool call is", "ms a step, alone", "CPU ms a step", "model worker", "tools worker", "Redis", "idle MB"),
        note=f"A step here is one call of the model and one of a tool that does nothing; runs of {_STEPS} of them, one "
        f"alone and {_TOGETHER} at once. The median of {rounds} rounds, and the range. CPU is user and system, of all "
        "processes and of each; the memory is that of the worker of tools before its first call, with its children.",
    )
    async with AsyncExitStack() as opened:
        rigs = [await opened.enter_async_context(Rig()) for _ in ways]
        workers = [_start(rig, way) for rig, way in zip(rigs, ways, strict=True)]
        for rig, those in zip(rigs, workers, strict=True):
            await rig.workers_ready(*those)
        idle = [Usage.of(those[-1].pid).rss for those in workers]
        for number in range(rounds + 1):
            for rig, those, way in zip(rigs, workers, ways, strict=True):
                await _round(rig, those, way, counts=number > 0)
    for way, megabytes in zip(ways, idle, strict=True):
        together = [sum(each) for each in way.cpu]
        table.rows.append(
            (way.name, *map(_told, (way.alone, together, *zip(*way.cpu, strict=True))), f"{megabytes:.0f}")
        )
    return [table]


def _start(rig: Rig, way: _Way) -> Sequence[ChildCommand]:
    if not way.has_worker:
        return [rig.start_worker(200, _TOOLS, "-Q", "model,tools")]
    return [rig.start_worker(200, _TOOLS), rig.start_tools(_TOOLS | way.environment, *way.options)]


async def _round(rig: Rig, workers: Sequence[ChildCommand], way: _Way, *, counts: bool) -> None:
    begun = time.monotonic()
    await _run(rig, way, 1)
    alone = 1e3 * (time.monotonic() - begun) / _STEPS
    pids = [*(each.pid for each in workers), rig.redis.pid]
    before = [Usage.of(pid).cpu for pid in pids]
    await _run(rig, way, _TOGETHER)
    spent = [Usage.of(pid).cpu - early for pid, early in zip(pids, before, strict=True)]
    if not way.has_worker:
        spent.insert(1, 0.0)
    if counts:
        way.alone.append(alone)
        way.cpu.append(tuple(1e3 * each / _TOGETHER / _STEPS for each in spent))


async def _run(rig: Rig, way: _Way, runs: int) -> None:
    submitted = [await rig.submit(_MODEL, tools=(way.tool,), instructions=INSTRUCTIONS) for _ in range(runs)]
    await rig.ended(submitted, every=0.01)


def _told(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.1f} ({ordered[0]:.1f} to {ordered[-1]:.1f})"
