"""What a provider that cools down does to the runs of another one, and how the crowd comes back to it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench.asked import BenchError, Call
from bench.conversation import TOOL
from bench.report import Table, percentile
from bench.rig import Rig

CROWD: Final = 200
RETRY_AFTER: Final = 3
_WORKERS: Final = 3
_OTHERS: Final = 10
_MODEL: Final = "tool-9+ttft-100"
"""Ten model calls of 0.1 s with a quick tool behind each: all of it fits into the cool-down."""
_WITHIN: Final = 60.0
_ON_THE_WIRE: Final = 0.25
"""Seconds after the first refusal in which a call that had begun may still arrive."""


@dataclass(frozen=True)
class Round:
    """Steps of the other provider's runs without and with a crowd that waits, and what the crowd did."""

    quiet: Sequence[float]
    cooling: Sequence[float]
    calls_during: int
    calls: int
    seconds: float
    """From the end of the cool-down until the whole crowd had its answer."""


async def measure(rounds: int) -> list[Table]:
    """Have a crowd refused at once, so many times. Raises BenchError when a run does not complete."""
    crowds = [f"crowd{i}" for i in range(rounds)]
    async with Rig(providers=("fake", *crowds)) as rig:
        await rig.workers_ready(*(rig.start_worker(CROWD) for _ in range(_WORKERS)))
        await _others(rig)
        done = [await _round(rig, crowd) for crowd in crowds]
    return [_others_table(done), _crowd_table(done)]


async def _round(rig: Rig, crowd: str) -> Round:
    quiet = await _others(rig)
    rig.asked.forget()
    runs = frozenset([await rig.submit(f"{crowd}/429-1-{RETRY_AFTER}+ttft-1500+echo") for _ in range(CROWD)])

    def refused(calls: Sequence[Call]) -> bool:
        return sum(call.outcome == "fault:429" for call in calls) == CROWD

    def answered(calls: Sequence[Call]) -> bool:
        return sum(call.outcome == "answered" for call in calls if call.run in runs) == CROWD

    calls = await rig.asked.until(refused, within=_WITHIN, what=f"{CROWD} runs refused")
    refusals = [call.ended_at or 0.0 for call in calls]
    cooling = await _others(rig)
    calls = await rig.asked.until(answered, within=_WITHIN, what=f"{CROWD} runs answered")
    of_crowd = [call for call in calls if call.run in runs]
    open_at = max(refusals) + RETRY_AFTER
    during = [call for call in of_crowd if min(refusals) + _ON_THE_WIRE < call.at < open_at]
    return Round(quiet, cooling, len(during), len(of_crowd), max(call.ended_at or 0.0 for call in of_crowd) - open_at)


async def _others(rig: Rig) -> list[float]:
    """Seconds from each call of some runs to the run's next one."""
    runs = frozenset([await rig.submit(_MODEL, tools=(TOOL,)) for _ in range(_OTHERS)])

    def done(calls: Sequence[Call]) -> bool:
        return sum(call.run in runs and call.outcome == "answered" for call in calls) == 10 * _OTHERS

    calls = await rig.asked.until(done, within=_WITHIN, what=f"{_OTHERS} runs of the other provider")
    begun: defaultdict[str, list[float]] = defaultdict(list)
    for call in calls:
        if call.run in runs:
            begun[call.run].append(call.at)
    if len(begun) != _OTHERS:
        raise BenchError(f"{_OTHERS} runs of the other provider expected, not {len(begun)}")
    await asyncio.sleep(0.2)
    return [after - before for each in begun.values() for before, after in pairwise(sorted(each))]


def _others_table(done: Sequence[Round]) -> Table:
    table = Table(
        f"Another provider's runs while {CROWD} runs wait for one that cools down ({len(done)} times)",
        ("", "ms a step, p50", "p95", "ratio of p95"),
        note=f"{_OTHERS} runs on {_WORKERS} workers; a step is a model call of 100 ms with an inline tool behind it.",
    )
    quiet = [step for each in done for step in each.quiet]
    for name, steps in (("none waits", quiet), ("cool-down", [step for each in done for step in each.cooling])):
        p95 = percentile(steps, 95)
        numbers = (f"{1e3 * percentile(steps, 50):.1f}", f"{1e3 * p95:.1f}", f"{p95 / percentile(quiet, 95):.2f}")
        table.rows.append((name, *numbers))
    return table


def _crowd_table(done: Sequence[Round]) -> Table:
    table = Table(
        f"{CROWD} runs that are refused at once with Retry-After: {RETRY_AFTER}",
        ("", ""),
        note="Counted by the model server, which refuses the first call of each run.",
    )
    extra = sum(each.calls - 2 * CROWD for each in done)
    slowest = max(each.seconds for each in done)
    table.rows += [
        ("calls during the cool-down", str(sum(each.calls_during for each in done))),
        ("calls that were not needed", f"{extra} of {sum(each.calls for each in done)}"),
        ("the last answer after the cool-down, at most", f"{slowest:.1f} s"),
    ]
    return table
