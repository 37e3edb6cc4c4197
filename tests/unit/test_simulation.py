"""The simulated fleet reproduces what was measured on real ones, and keeps what it says."""

from __future__ import annotations

from random import Random

import pytest

from bench.simulation.clock import Clock, Station
from bench.simulation.fleet import Fleet
from bench.simulation.plan import Plan
from bench.simulation.points import POINTS, Point
from bench.simulation.product import FAILURES, FIRST_SECOND, RAMP
from bench.simulation.scenarios import SCENARIOS, fleet_of
from bench.simulation.svg import Chart, Line
from palaver.steps.retry import MODEL_CALL

WITHIN = 0.15


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.what)
def test_what_was_measured_is_reproduced(point: Point) -> None:
    assert point.simulate() == pytest.approx(point.measured, rel=WITHIN)


def test_numbers_of_the_product_are_read_from_its_scripts() -> None:
    assert (FIRST_SECOND, RAMP, FAILURES) == (10, 10.0, 5)


def test_a_station_waits_as_queueing_theory_says() -> None:
    clock, random, waits = Clock(), Random(1), list[float]()
    station, load = Station(clock), 0.8

    def come(left: int) -> None:
        waits.append(station.waiting)
        station.do(1.0, lambda: None)
        if left:
            clock.after(random.expovariate(load), come, left - 1)

    come(40_000)
    clock.run(float("inf"))
    # Pollaczek and Khinchine, for services of one length.
    assert sum(waits) / len(waits) == pytest.approx(load / (2 * (1 - load)), rel=0.1)


def small(**more: object) -> Fleet:
    plan = {"workers": 3, "slots": 40, "steps": 3, "model_seconds": 0.5, "rate": {"a": 10.0}, **more}
    return Fleet(Plan(**{"keeps_submitting_until": 20.0, **plan}))  # type: ignore[arg-type]


def counted(fleet: Fleet) -> tuple[int, ...]:
    told = fleet.told
    return told.steps, told.completed, told.failed, told.taken_over, fleet.provider.calls, fleet.clock.events


def test_the_same_seed_gives_the_same_fleet() -> None:
    one, same, other = small(), small(), small(seed=2)
    for fleet in (one, same, other):
        fleet.go(100.0)
    assert counted(one) == counted(same) != counted(other)


def test_every_run_ends_once_whatever_is_killed() -> None:
    fleet = small()
    for time in (3.0, 6.0, 9.0):
        fleet.go(time)
        fleet.kill(1)
        fleet.go(time + 1.0)
        fleet.start_again()
    told = fleet.go(200.0)
    assert told.taken_over > 0
    assert (fleet.runs, told.failed, len(fleet.turns), fleet.gate.waiting) == (0, 0, 0, 0)
    assert told.steps == 3 * told.completed
    assert all(not worker.held for worker in fleet.workers)
    assert all(tenant.in_flight == 0 for tenant in fleet.turns.tenants.values())


def test_an_outage_that_is_longer_than_the_patience_of_the_policy_fails_runs() -> None:
    fleet = small()
    fleet.provider.out = True
    patience = MODEL_CALL.patience.total_seconds()
    told = fleet.go(patience - 20.0)
    assert told.failed == 0
    assert fleet.go(patience + 100.0).failed > 0
    assert fleet.runs == 0


def test_a_cap_holds() -> None:
    fleet = small(caps={"a": 2}, rate={"a": 10.0})
    most = 0
    for tenth in range(200):
        fleet.go(tenth / 10)
        most = max(most, fleet.turns.tenants["a"].in_flight)
    assert most == 2


@pytest.mark.parametrize("name", ["storm", "flood"])
def test_a_scenario_has_a_table_and_charts(name: str) -> None:
    scenario = SCENARIOS[name](0.04)
    assert all(len(row) == len(scenario.table.columns) for row in scenario.table.rows)
    assert all(chart.svg().startswith("<svg ") and "NaN" not in chart.svg() for chart in scenario.charts)


def test_a_million_runs_are_cells() -> None:
    size = fleet_of(1_000_000, 3.0)
    assert size.steps_per_second == pytest.approx(333_333, rel=0.01)
    assert size.cells == pytest.approx(size.steps_per_second / 1727, abs=1)


def test_a_chart_shows_the_peak_of_points_that_fall_together() -> None:
    chart = Chart("x", "A < B", "ms", [Line("one", [0.0] * 5000 + [9.0] + [0.0] * 5000)])
    text = chart.svg()
    assert "A &lt; B" in text
    assert " 40.0" in text, "the peak touches the top line"
