"""What it costs to be told of: the same steps by a worker that is traced and measured, and by one that is not.

Each has a Redis and a model server of its own, and they take short turns, so that whatever else the machine does meets
both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from typing import Final

from bench.conversation import INSTRUCTIONS, MODEL, TOOL
from bench.report import Table
from bench.rig import Rig
from bench.steps import Sample, Side, sample
from palaver.stack.readiness import accepts
from palaver.testing import aeventually
from palaver.testing.ports import HOST, free_port
from palaver.traces import Tracing

_AT_ONCE: Final = 50
_REST: Final = 1.5
"""Seconds after the work of a turn: a worker that sends looks for traces once a second. The other one has them as well,
as a worker that does nothing uses CPU, too."""
_SENT_WITHIN: Final = 20.0
"""Seconds in which the traces of a turn are sent."""


async def measure(rounds: int) -> list[Table]:
    """Measure in so many rounds. Raises BenchError when a worker does not do the work."""
    async with AsyncExitStack() as opened:
        quiet, told = [await opened.enter_async_context(Rig()) for _ in range(2)]
        sides = {"neither": (quiet, _plain(quiet)), "traces and histograms": (told, await _told(told))}
        samples: dict[str, list[Sample]] = {name: [] for name in sides}
        for turn in range(-1, rounds):
            for name, (rig, side) in sorted(sides.items(), reverse=bool(turn % 2)):
                found = await sample(rig, side, in_a_row=1, at_once=_AT_ONCE, afterwards=partial(_sent, rig))
                if turn >= 0:
                    samples[name].append(found)
    title = f"A step that is told of, {_AT_ONCE} runs at once ({rounds} times, in turns)"
    table = Table(title, ("", "CPU ms a step", "ratio", "Redis CPU ms a step", "ratio", "RSS MB"), note=_NOTE)
    first = samples["neither"]
    for name, each in samples.items():
        # In pairs: both met the same machine.
        ratio = median(one.cpu / other.cpu for one, other in zip(each, first, strict=True))
        redis = median(one.redis_cpu / other.redis_cpu for one, other in zip(each, first, strict=True))
        cpu, redis_cpu = median(one.cpu for one in each), median(one.redis_cpu for one in each)
        rss = max(one.rss for one in each)
        table.rows.append(
            (name, f"{1e3 * cpu:.2f}", f"{ratio:.3f}", f"{1e3 * redis_cpu:.2f}", f"{redis:.3f}", f"{rss:.0f}")
        )
    return [table]


_NOTE: Final = (
    "Each run is a trace with a span for the run, its model calls and its inline calls; sending them is counted. "
    "Ratios are medians of those of each turn."
)


def _plain(rig: Rig) -> Side:
    return Side("neither", rig.start_worker(_AT_ONCE), lambda: _submit(rig))


async def _told(rig: Rig) -> Side:
    collector, metrics = free_port(), free_port()
    rig.start("bench.collector", "--port", str(collector))
    await rig.until(lambda: accepts(collector), "the collector listens")
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{collector}",
        "PALAVER_METRICS_PORT": str(metrics),
    }

    async def submit() -> object:
        with Tracing().asked(None):
            return await _submit(rig)

    return Side("traces and histograms", rig.start_worker(_AT_ONCE, environment), submit)


def _submit(rig: Rig) -> Awaitable[str]:
    return rig.submit(MODEL, tools=(TOOL,), instructions=INSTRUCTIONS)


async def _sent(rig: Rig) -> None:
    await asyncio.sleep(_REST)
    await aeventually(lambda: _nothing_left(rig), within=_SENT_WITHIN, every=0.05)


async def _nothing_left(rig: Rig) -> bool:
    return not await rig.store.spans.read("00", 1)
