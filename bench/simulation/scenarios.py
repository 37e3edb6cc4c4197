"""What happens to a fleet: load, a provider's outage, a zone's loss, a storm of retries, a tenant that floods others.

What is simulated is one cell. A fleet of a million runs in flight is some hundreds of them (`fleet_of`), each with a
Redis of its own: nothing passes between two of them, so each behaves as this one, and numbers add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Final, NamedTuple

from bench.report import Table
from bench.simulation.costs import MEASURED
from bench.simulation.fleet import Fleet
from bench.simulation.plan import Outcome, Plan
from bench.simulation.svg import Chart, Line

REDIS_SHARE: Final = 0.5
"""The part of a core that a cell's Redis is to be busy, in ordinary times."""
ZONES: Final = 3
STEPS: Final = 21
REDIS_A_STEP: Final = (
    MEASURED.redis_in_place * 19 + (MEASURED.redis_claim + MEASURED.redis_settle) * 2 + MEASURED.redis_submit
) / STEPS
"""Seconds of Redis a step of a run of 21: two deliveries, and the rest in place."""
PER_SECOND: Final = REDIS_SHARE / REDIS_A_STEP
"""Steps a second of a cell."""
CELL: Final = Plan(workers=6, slots=2000, apis=2, steps=STEPS, rate={"all": PER_SECOND / STEPS})
"""Twice as many workers as its steps need, so that a zone may be lost."""


class FleetSize(NamedTuple):
    """What so many runs in flight take."""

    cells: int
    steps_per_second: float
    workers: int


def fleet_of(runs: int, every: float) -> FleetSize:
    """Cells for so many runs in flight, each with a step ``every`` so many seconds."""
    cells = ceil(runs / every / PER_SECOND)
    return FleetSize(cells, runs / every, cells * CELL.workers)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What came of one."""

    table: Table
    charts: Sequence[Chart]


def each_second(counted: Sequence[float]) -> list[float]:
    """The growth of a count from second to second."""
    return [after - before for before, after in pairwise(counted)]


def smooth(values: Sequence[float], over: int = 15) -> list[float]:
    """The mean of the last so many values, at each of them."""
    return [sum(some) / len(some) for end in range(1, len(values) + 1) if (some := values[max(0, end - over) : end])]


def queueing(scale: float = 1.0) -> Scenario:
    """Redis at more and more of its core."""
    table = Table("Queueing: Redis at more and more of its core", ("load of Redis", *_WAITS, "steps/s"))
    lines = []
    for load in (0.5, 0.8, 0.95, 1.1):
        rate = load / REDIS_A_STEP / STEPS
        fleet = Fleet(replace(CELL, workers=12, rate={"all": rate}))
        # Until as many runs end as begin, and for as long again.
        seconds = 140 * scale
        told = fleet.go(seconds)
        steps = told.samples["steps"]
        half = len(steps) // 2
        rate_seen = (steps[-1] - steps[half]) / max(1, len(steps) - 1 - half)
        table.rows.append((f"{load:g}", *_waits(told, seconds / 2), f"{rate_seen:,.0f}"))
        lines.append(Line(f"load {load:g}", [1e3 * each for each in smooth(told.samples["redis waits"])]))
    chart = Chart(
        "queueing",
        "What comes to Redis waits for",
        "ms, a mean of 15 s, by the load of its one core",
        lines,
        logarithmic=True,
    )
    return Scenario(table, [chart])


def outage(scale: float = 1.0) -> Scenario:
    """The provider fails for five minutes."""
    begin, end, last = 90 * scale, 390 * scale, 750 * scale
    fleet = Fleet(CELL)
    fleet.go(begin)
    fleet.provider.out = True
    fleet.go(end)
    calls, left = fleet.provider.calls, fleet.gate.waiting
    fleet.provider.out = False
    told = fleet.go(last)
    in_outage = calls - int(told.samples["calls"][int(begin)])
    back = next((i for i, each in enumerate(told.samples["at the gate"]) if i > end and not each), last)
    table = Table("A provider's outage of five minutes", ("", ""))
    table.rows += [
        ("calls in the outage", f"{in_outage:,}"),
        ("steps that waited at its end", f"{left:,}"),
        ("runs that failed", f"{told.failed:,}"),
        ("nobody waits any more, after its end", f"{back - end:.0f} s"),
        ("the longest wait for a worker behind it", f"{told.waited(100, after=end):.1f} s"),
    ]
    marks = [(begin, "it fails"), (end, "it is back")]
    waiting = [Line("for the provider", told.samples["at the gate"]), Line("for a worker", told.samples["ready"])]
    rates = [Line("calls", each_second(told.samples["calls"])), Line("steps", each_second(told.samples["steps"]))]
    charts = [
        Chart("outage-waiting", "A provider's outage: steps that wait", "steps, of one cell", waiting, marks),
        Chart("outage-rate", "A provider's outage: calls, and steps done", "a second, of one cell", rates, marks),
    ]
    return Scenario(table, charts)


def zone(scale: float = 1.0) -> Scenario:
    """A third of the workers dies, and is back a minute later."""
    begin, end, last = 70 * scale, 130 * scale, 170 * scale
    table = Table(
        "A zone's loss: a third of the workers",
        ("", "steps taken over", "worked on again, p50", "p99", "runs that failed", "longest wait for a worker"),
    )
    lines = []
    for name, watches in (("deaths are seen", True), ("leases run out", False)):
        fleet = Fleet(replace(CELL, watches_deaths=watches))
        fleet.go(begin)
        fleet.kill(CELL.workers // ZONES)
        fleet.go(end)
        fleet.start_again()
        told = fleet.go(last)
        again = sorted(told.first_call_again)
        row = (
            f"{told.taken_over:,}",
            f"{_of(again, 50):.1f} s",
            f"{_of(again, 99):.1f} s",
            f"{told.failed:,}",
            f"{told.waited(100, after=begin):.2f} s",
        )
        table.rows.append((name, *row))
        lines.append(Line(name, each_second(told.samples["steps"])))
    marks = [(begin, "a zone is lost"), (end, "it is back")]
    chart = Chart("zone", "A zone's loss: steps done", "a second, of one cell", lines, marks)
    return Scenario(table, [chart])


def storm(scale: float = 1.0) -> Scenario:
    """The provider takes half of the calls for a minute, and refuses the others."""
    begin, end, last = 70 * scale, 130 * scale, 220 * scale
    table = Table(
        "A provider that takes half of the calls for a minute",
        ("", "calls meanwhile", "refused", "runs that failed", "steps meanwhile"),
        note="It refuses the others with a 429 and `Retry-After: 2`.",
    )
    lines = []
    for name, shared in (("shared cool-down", True), ("each step for itself", False)):
        fleet = Fleet(replace(CELL, shared_gate=shared))
        fleet.go(begin)
        fleet.provider.per_second, fleet.provider.retry_after = PER_SECOND / 2, 2.0
        before = fleet.provider.calls, fleet.provider.refusals, fleet.told.steps
        fleet.go(end)
        fleet.provider.per_second = None
        after = fleet.provider.calls, fleet.provider.refusals, fleet.told.steps
        told = fleet.go(last)
        calls, refused, steps = (late - early for late, early in zip(after, before, strict=True))
        table.rows.append((name, f"{calls:,}", f"{refused:,}", f"{told.failed:,}", f"{steps:,}"))
        lines.append(Line(name, each_second(told.samples["refusals"])))
    marks = [(begin, "half of them"), (end, "all")]
    chart = Chart("storm", "A storm of retries: calls that are refused", "a second, of one cell", lines, marks)
    return Scenario(table, [chart])


def flood(scale: float = 1.0) -> Scenario:
    """One tenant submits ten thousand runs at once, beside another one."""
    begin, last = 30 * scale, 180 * scale
    table = Table(
        "A tenant with 10,000 runs at once, beside one with 5 a second",
        ("", "the other's runs begin after, p50", "p99", "the flood's p50"),
        note="Two workers with 1,000 places each: the flood alone is a minute's work.",
    )
    lines = []
    for name, fair in (("tenants take turns", True), ("one line for all", False)):
        fleet = Fleet(replace(CELL, workers=2, slots=1000, steps=4, rate={"other": 5.0, "flood": 0.0}, fair=fair))
        fleet.go(begin)
        fleet.submit("flood", round(10_000 * scale))
        told = fleet.go(last)
        meanwhile = partial(told.waited, first=True, after=begin, until=begin + 50 * scale)
        waits = [meanwhile(percent, tenant="other") for percent in (50, 99)]
        whose = meanwhile(50, tenant="flood")
        table.rows.append((name, f"{waits[0]:.2f} s", f"{waits[1]:.2f} s", f"{whose:.1f} s"))
        lines.append(Line(name, _by_second(told, "other", round(last))))
    chart = Chart("flood", "One tenant floods another one: whose runs wait for", "seconds, by when they came",
                  lines, [(begin, "10,000 runs")])  # fmt: skip
    return Scenario(table, [chart])


SCENARIOS: Final[Mapping[str, Callable[[float], Scenario]]] = {
    "queueing": queueing,
    "outage": outage,
    "zone": zone,
    "storm": storm,
    "flood": flood,
}
_WAITS: Final = ("wait for a worker, p50 ms", "p99 ms", "p99.9 ms")


def _waits(told: Outcome, after: float) -> Sequence[str]:
    return [f"{1e3 * told.waited(percent, after=after):,.1f}" for percent in (50, 99, 99.9)]


def _of(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def _by_second(told: Outcome, tenant: str, seconds: int) -> list[float]:
    """The longest wait of a tenant's runs that came in each second; where none came, that of the second before."""
    longest: list[float | None] = [None] * (seconds + 1)
    for each in told.waits:
        if each.tenant == tenant and each.first:
            second = int(each.ready_at)
            longest[second] = max(longest[second] or 0.0, each.seconds)
    known = 0.0
    return [known := known if wait is None else wait for wait in longest]
