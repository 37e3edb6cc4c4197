"""The stops of a worker's loop, and its memory, while it does short runs by the ten thousand; then runs of many steps.

The worker says itself when its loop stood still, and whether the garbage collector was the cause
(docs/reference/metrics.md); it does so for stops of 15 ms or more.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Self, get_args
from urllib.request import urlopen

from bench.conversation import CALLS, INSTRUCTIONS, MODEL, TOOL
from bench.many_runs import work_off
from bench.report import Table, number
from bench.rig import Rig
from bench.usage import Usage
from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from palaver.telemetry.metrics import StopCause

_SLOTS: Final = 50
_LOOK_EVERY: Final = 1_000
"""Runs, some seconds: the longest stop of a minute is told for one more."""
_BEYOND: Final = (15, 50, 100)
"""Milliseconds."""
_CAUSES: Final[tuple[StopCause, ...]] = get_args(StopCause)
_NOTE: Final = (
    "One worker with 50 slots and its log lines and events. For each cause the stops longer than so many ms in these "
    "runs, and the longest; other stops than collections are also those of a machine with too much to do. Steps/s are "
    "of the whole, submits included."
)


@dataclass(frozen=True)
class Stops:
    """What a worker says of its loop: so far, and the longest of late."""

    beyond: dict[StopCause, tuple[int, ...]]
    longest: dict[StopCause, float]

    @classmethod
    def of(cls, port: int) -> Self:
        """Ask the worker."""
        found: dict[str, float] = {}
        with urlopen(f"http://{HOST}:{port}/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("palaver_loop_"):
                    name, _, value = line.rpartition(" ")
                    found[name] = float(value)
        beyond = {cause: tuple(_beyond(found, cause, edge) for edge in _BEYOND) for cause in _CAUSES}
        return cls(beyond, {c: found[f'palaver_loop_longest_stop_seconds{{cause="{c}"}}'] for c in _CAUSES})


async def measure(runs: int, every: int, steps: int) -> list[Table]:
    """Measure so many short runs, a row for ``every`` so many, and then runs of 21 steps. Raises BenchError."""
    title = f"Stops of a worker's loop, and its memory, by the {every:,} short runs"
    stops = [f"{cause}: beyond {', '.join(map(str, _BEYOND))} ms; longest" for cause in _CAUSES]
    table = Table(title, ("", "steps/s", "CPU ms a step", *stops, "RSS MB", "API MB"), note=_NOTE)
    async with Rig() as rig:
        port = free_port()
        worker = rig.start_worker(_SLOTS, {"PALAVER_METRICS_PORT": str(port)}, "-E", "-l", "INFO")
        _, api = await rig.start_api()
        await rig.workers_ready(worker)
        table.rows.append(("fresh", "", "", "", "", _rss(worker), _rss(api)))

        async def row(name: str, turns: int, steps_a_turn: int, turn: Callable[[], Awaitable[object]]) -> None:
            before, used, began, longest = (
                Stops.of(port),
                Usage.of(worker.pid),
                time.monotonic(),
                dict.fromkeys(_CAUSES, 0.0),
            )
            for _ in range(turns):
                await turn()
                now = Stops.of(port)
                longest = {cause: max(longest[cause], now.longest[cause]) for cause in _CAUSES}
            done = turns * steps_a_turn
            cells = [_cell(before.beyond[c], now.beyond[c], longest[c]) for c in _CAUSES]
            rate, cpu = done / (time.monotonic() - began), 1e3 * (Usage.of(worker.pid).cpu - used.cpu) / done
            table.rows.append((name, number(rate), f"{cpu:.2f}", *cells, _rss(worker), _rss(api)))

        async def short_runs() -> None:
            await work_off(rig, _LOOK_EVERY)

        async def long_runs() -> None:
            await rig.ended([await rig.submit(MODEL, tools=(TOOL,), instructions=INSTRUCTIONS) for _ in range(_SLOTS)])

        for done in range(every, runs + 1, every):
            await row(f"{done:,} runs", every // _LOOK_EVERY, _LOOK_EVERY, short_runs)
        turns = max(1, steps // (_SLOTS * CALLS))
        await row(f"then {turns * _SLOTS:,} runs of {CALLS} steps", turns, _SLOTS * CALLS, long_runs)
    return [table]


def _beyond(found: dict[str, float], cause: StopCause, edge: int) -> int:
    """So many stops were longer; the buckets of a histogram count those that were not."""
    name = "palaver_loop_stop_seconds"
    shorter = found[f'{name}_bucket{{cause="{cause}",le="{edge / 1e3:g}"}}']
    return int(found[f'{name}_count{{cause="{cause}"}}'] - shorter)


def _cell(before: tuple[int, ...], now: tuple[int, ...], longest: float) -> str:
    counts = [after - was for was, after in zip(before, now, strict=True)]
    return ", ".join(map(str, counts)) + (f"; {1e3 * longest:.0f} ms" if any(counts) else "")


def _rss(child: ChildCommand) -> str:
    return f"{Usage.of(child.pid).rss:.0f}"
