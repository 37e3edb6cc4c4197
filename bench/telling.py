"""What it costs to be told of: the same steps by a worker that is traced and measured, and by one that is not.

Each has a Redis and a model server of its own, and they take short turns, so that whatever else the machine does meets
both. Two workers that do the same differ by a few percent as long as they live, so several pairs are measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain
from statistics import median
from typing import Final

from bench.conversation import INSTRUCTIONS, MODEL, TOOL
from bench.report import Table
from bench.rig import Rig
from bench.steps import Sample, Side, sample
from features.stack.ports import HOST, free_port
from features.stack.readiness import accepts
from features.tracing.outbox import SpanOutbox
from palaver.telemetry.traces import Tracing
from tests.waiting import aeventually

_SIDES: Final = ("neither", "traces and histograms")
_AT_ONCE: Final = 50
_REST: Final = 1.5
"""Seconds after the work of a turn: a worker that sends looks for traces once a second. The other one has them as well,
as a worker that does nothing uses CPU, too."""
_SENT_WITHIN: Final = 20.0
"""Seconds in which the traces of a turn are sent."""


async def measure(pairs: int, rounds: int) -> list[Table]:
    """Measure so many pairs of workers, each in so many rounds. Raises BenchError if a worker does not do the work."""
    samples: dict[str, list[list[Sample]]] = {name: [] for name in _SIDES}
    for _ in range(pairs):
        for name, found in (await _pair(rounds)).items():
            samples[name].append(found)
    title = f"A step that is told of, {_AT_ONCE} runs at once ({pairs} pairs of workers, {rounds} times each, in turns)"
    columns = ("", "CPU ms a step", "ratio", "of each pair", "Redis CPU ms a step", "ratio", "RSS MB")
    table = Table(title, columns, note=_NOTE)
    for name, each in samples.items():
        first = samples[_SIDES[0]]
        ratios = [_ratios(*both, lambda sample: sample.cpu) for both in zip(each, first, strict=True)]
        redis = [_ratios(*both, lambda sample: sample.redis_cpu) for both in zip(each, first, strict=True)]
        taken = [*chain(*each)]
        table.rows.append(
            (
                name,
                f"{1e3 * median(one.cpu for one in taken):.2f}",
                f"{median(chain(*ratios)):.3f}",
                " ".join(f"{median(of_pair):.2f}" for of_pair in ratios),
                f"{1e3 * median(one.redis_cpu for one in taken):.2f}",
                f"{median(chain(*redis)):.3f}",
                f"{max(one.rss for one in taken):.0f}",
            )
        )
    return [table]


async def _pair(rounds: int) -> dict[str, list[Sample]]:
    """What two workers use that were started just now, one of each side."""
    async with AsyncExitStack() as opened:
        quiet, told = [await opened.enter_async_context(Rig()) for _ in range(2)]
        sides = dict(zip(_SIDES, ((quiet, _plain(quiet)), (told, await _told(told))), strict=True))
        found: dict[str, list[Sample]] = {name: [] for name in _SIDES}
        for turn in range(-1, rounds):
            for name in _SIDES if turn % 2 else reversed(_SIDES):
                rig, side = sides[name]
                one = await sample(rig, side, in_a_row=1, at_once=_AT_ONCE, afterwards=partial(_sent, rig))
                if turn >= 0:
                    found[name].append(one)
        return found


def _ratios(each: Sequence[Sample], first: Sequence[Sample], used: Callable[[Sample], float]) -> list[float]:
    """Of what both used in the same round: both met the same machine."""
    return [used(one) / used(other) for one, other in zip(each, first, strict=True)]


_NOTE: Final = (
    "Each run is a trace with a span for the run, its model calls and its inline calls; sending them is counted. "
    "Ratios are medians of those of each turn. Processes that do the same differ, too, as long as they live: "
    "so there are several pairs."
)


def _plain(rig: Rig) -> Side:
    return Side(_SIDES[0], rig.start_worker(_AT_ONCE), lambda: _submit(rig))


async def _told(rig: Rig) -> Side:
    collector, metrics = free_port(), free_port()
    rig.start("bench.collector", "--port", str(collector))
    await rig.until(lambda: accepts(collector), "the collector listens")
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{collector}",
        "PALAVER_METRICS_PORT": str(metrics),
    }

    async def submit() -> object:
        with Tracing().request(None):
            return await _submit(rig)

    return Side(_SIDES[1], rig.start_worker(_AT_ONCE, environment), submit)


def _submit(rig: Rig) -> Awaitable[str]:
    return rig.submit(MODEL, tools=(TOOL,), instructions=INSTRUCTIONS)


async def _sent(rig: Rig) -> None:
    await asyncio.sleep(_REST)
    await aeventually(lambda: _nothing_left(rig), within=_SENT_WITHIN, every=0.05)


async def _nothing_left(rig: Rig) -> bool:
    return not await rig.store.part(SpanOutbox).read("00", 1)
