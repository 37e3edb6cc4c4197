"""Points that were measured on real fleets, and the same in the simulation: tests/unit/test_simulation.py compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from bench.simulation.costs import MEASURED, MS
from bench.simulation.fleet import Fleet
from bench.simulation.plan import Plan

_AT_ONCE: Final = 0.5 * MS
"""The answer of a model server that takes no time for it."""
_LONG: Final = 1000.0


class Point(NamedTuple):
    """A number of a real fleet."""

    what: str
    measured: float
    where: str
    simulate: Callable[[], float]


def _rate(workers: int, runs: int, worker: float, **more: Any) -> Callable[[], float]:
    """Model steps a second of so many runs at once, on a machine of two cores with all else."""
    costs = replace(MEASURED, worker=worker * MS, tools=more.pop("tools", 0.0) * MS)
    plan = Plan(
        workers=workers, slots=runs, cores=2, model_seconds=_AT_ONCE, model_spread=0.0, at_once=runs, costs=costs
    )

    def simulate() -> float:
        told = Fleet(replace(plan, **more)).go(_LONG)
        return told.steps / told.ended_at

    return simulate


def _crowd(runs: int, retry_after: float, seconds: float) -> Fleet:
    """Runs of one call, all of which are refused once."""
    fleet = Fleet(Plan(workers=3, slots=runs, steps=1, model_seconds=seconds, model_spread=0.0, at_once=runs))
    fleet.provider.refuses_first, fleet.provider.retry_after = True, retry_after
    fleet.go(_LONG)
    return fleet


def _last_answer() -> float:
    """Seconds from the end of the cool-down until the whole crowd had its answer."""
    fleet = _crowd(200, 3.0, 1.5)
    # Each refusal asks for three seconds, the last one moves the end.
    refused = sorted(fleet.told.began_at)[199] + 1.5
    return fleet.told.ended_at - refused - 3.0


def _calls_per_run() -> float:
    fleet = _crowd(200, 3.0, 1.5)
    return fleet.provider.calls / 200


def _ramp(calls: int) -> Callable[[], float]:
    """Seconds in which so many calls begin after a cool-down."""

    def simulate() -> float:
        fleet = _crowd(calls, 3.0, 10.0)
        begun = sorted(fleet.told.began_at)
        # Before, each had its first one, which was refused after ten seconds: three seconds behind the last of these.
        return begun[2 * calls - 1] - begun[calls - 1] - 13.0

    return simulate


def _probes() -> float:
    """Calls in an outage of five minutes, behind those that open the circuit."""
    fleet = Fleet(Plan(workers=2, slots=200, steps=4, model_seconds=0.5, at_once=200))
    fleet.provider.out = True
    fleet.go(5.0)
    before = fleet.provider.calls
    fleet.go(300.0)
    return float(fleet.provider.calls - before)


def _takeover() -> float:
    """Seconds from the death of a worker until its last step is worked on again."""
    fleet = Fleet(Plan(workers=2, slots=100, steps=2, model_seconds=5.0, at_once=40))
    fleet.go(2.0)
    fleet.kill(1)
    return max(fleet.go(_LONG).first_call_again)


def _share(weight: float) -> Callable[[], float]:
    """The share of the calls of a tenant of this weight beside one of weight 1, both of which wait."""

    def simulate() -> float:
        plan = Plan(slots=20, steps=1, model_seconds=0.3, model_spread=0.0, weights={"many": weight, "few": 1.0})
        fleet = Fleet(plan)
        for _ in range(1000):
            fleet.submit("many")
            fleet.submit("few")
        while sum(fleet.told.begun.values()) < 1000:
            fleet.go(fleet.clock.now + 1.0)
        return fleet.told.begun["many"] / sum(fleet.told.begun.values())

    return simulate


_EARLIER: Final = "outside harness, 2026-11-23"
POINTS: Final[Sequence[Point]] = (
    Point("steps/s, 1 worker, 50 runs", 884, _EARLIER, _rate(1, 50, 0.99)),
    Point("steps/s, 1 worker, 500 runs", 800, _EARLIER, _rate(1, 500, 1.17)),
    Point("steps/s, 2 workers, 50 runs", 1175, _EARLIER, _rate(2, 50, 1.06)),
    Point("steps/s, 2 workers, 500 runs", 1176, _EARLIER, _rate(2, 500, 1.15)),
    Point("steps/s, tool steps in children", 395, _EARLIER, _rate(1, 50, 1.24, tools=1.99, tool_steps=True)),
    Point(
        "steps/s, tool steps on a loop", 661, _EARLIER, _rate(1, 50, 1.12, tools=0.6, tool_steps=True, tool_children=1)
    ),
    Point("calls a run of a crowd that is refused once", 2.0, "docs/why/bench.md", _calls_per_run),
    Point("the crowd's last answer after its cool-down, s", 6.2, "docs/why/bench.md", _last_answer),
    Point("200 calls begin after a cool-down within, s", 4.4, "docs/adr/0009", _ramp(200)),
    Point("5,000 calls begin after a cool-down within, s", 9.0, "docs/adr/0009", _ramp(5000)),
    Point("calls in the last 295 s of an outage of 300 s", 59, "docs/adr/0009", _probes),
    Point("takeover from a dead worker, s", 1.65, _EARLIER, _takeover),
    Point("share of a tenant of weight 1 of 2", 0.5, "bench --only fair", _share(1)),
    Point("share of a tenant of weight 3 of 4", 0.75, "bench --only fair", _share(3)),
)
