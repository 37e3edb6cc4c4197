"""A worker that was started just now beside one that has done many short runs, in turns on one stack.

Both serve one store and one model server; the broker of each is a database of its own, so that a turn's deliveries go
to one of them alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Final

from bench.conversation import INSTRUCTIONS, MODEL, TOOL
from bench.many_runs import work_off
from bench.report import Table, number
from bench.rig import Rig
from bench.steps import Sample, Side, sample
from palaver.delivery.deliveries import Publisher

_AT_ONCE: Final = 50
_SIDES: Final = ("fresh", "worked")
_NOTE: Final = (
    "The same conversations of 21 model calls, 50 at once, by a worker that was started just now and by one with short "
    "runs behind it; CPU is the worker process's, user and system. Medians, and the range, of the rounds; ratios are "
    "of each round, so that both sides met the same machine."
)


async def measure(behind: int, rounds: int) -> list[Table]:
    """Measure in so many rounds, with so many short runs behind the worker that has worked. Raises BenchError."""
    async with Rig() as rig:
        brokers = [rig.broker_url(database) for database in (2, 3)]
        publishers = [rig.start_publisher(url) for url in brokers]
        workers = [rig.start_worker(_AT_ONCE, {"PALAVER_BROKER_URL": url}, "-E", "-l", "INFO") for url in brokers]
        await rig.workers_ready(*workers)
        sides = [
            Side(name, worker, _submit(rig, publisher))
            for name, worker, publisher in zip(_SIDES, workers, publishers, strict=True)
        ]
        await work_off(rig, behind, publishers[1])
        found: dict[str, list[Sample]] = {name: [] for name in _SIDES}
        for turn in range(-1, rounds):
            for side in sides if turn % 2 else reversed(sides):
                one = await sample(rig, side, in_a_row=1, at_once=_AT_ONCE)
                if turn >= 0:
                    found[side.name].append(one)
    return [_table(behind, rounds, found["fresh"], found["worked"])]


def _submit(rig: Rig, publisher: Publisher) -> Callable[[], Awaitable[object]]:
    return lambda: rig.submit(MODEL, tools=(TOOL,), instructions=INSTRUCTIONS, publisher=publisher)


def _table(behind: int, rounds: int, fresh: Sequence[Sample], worked: Sequence[Sample]) -> Table:
    columns = ("", "steps/s", "ratio", "CPU ms a step", "ratio", "RSS MB")
    table = Table(
        f"A worker with {behind:,} short runs behind it, and a fresh one ({rounds} times)", columns, note=_NOTE
    )
    for name, each in zip(_SIDES, (fresh, worked), strict=True):
        rates = [one.rate / other.rate for one, other in zip(each, fresh, strict=True)]
        costs = [one.cpu / other.cpu for one, other in zip(each, fresh, strict=True)]
        table.rows.append(
            (
                name,
                number(median(one.rate for one in each)),
                _ratio(rates),
                f"{1e3 * median(one.cpu for one in each):.2f}",
                _ratio(costs),
                f"{max(one.rss for one in each):.0f}",
            )
        )
    return table


def _ratio(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
