"""`python -m bench.simulate [--plots FOLDER] [--only SCENARIO] [--runs N] [--every SECONDS]`: a fleet as a simulation.

It needs no server. It prints how well the simulation reproduces what was measured, what so many runs in flight take,
and what becomes of a cell in each scenario; all of it takes three minutes of one core, and is the same each time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.report import Table, number
from bench.simulation.points import POINTS
from bench.simulation.scenarios import CELL, PER_SECOND, REDIS_A_STEP, REDIS_SHARE, SCENARIOS, fleet_of


def compared() -> Table:
    """What was measured, and what the simulation makes of it."""
    table = Table("Measured and simulated", ("", "measured", "simulated", "ratio"))
    for point in POINTS:
        simulated = point.simulate()
        ratio = f"{simulated / point.measured:.2f}"
        table.rows.append((point.what, number(point.measured), number(simulated), ratio))
    return table


def sized(runs: int, every: float) -> Table:
    """Cells for so many runs in flight."""
    size = fleet_of(runs, every)
    table = Table(
        f"{runs:,} runs in flight, with a step every {every:g} s",
        ("", ""),
        note=f"A cell has a Redis that is busy for {REDIS_SHARE:.0%} of a core, at {1e3 * REDIS_A_STEP:.2f} ms a step.",
    )
    table.rows += [
        ("steps a second", f"{size.steps_per_second:,.0f}"),
        ("cells", f"{size.cells:,}"),
        ("steps a second of a cell", f"{PER_SECOND:,.0f}"),
        ("runs in flight of a cell", f"{PER_SECOND * every:,.0f}"),
        ("model workers, of which a third may be lost", f"{size.workers:,}"),
        ("places of each of them", f"{CELL.slots:,}"),
    ]
    return table


def main() -> None:
    """Simulate, print, and plot if that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write the charts there, as SVG")
    parser.add_argument("--only", choices=SCENARIOS, metavar="SCENARIO", help=f"one of {', '.join(SCENARIOS)}")
    parser.add_argument("--runs", type=int, default=1_000_000, help="runs in flight (1000000)")
    parser.add_argument("--every", type=float, default=3.0, metavar="SECONDS", help="between two steps of a run (3)")
    given = parser.parse_args()
    if not given.only:
        print(f"{compared().markdown()}\n\n{sized(given.runs, given.every).markdown()}\n")
    for name, simulate in SCENARIOS.items():
        if given.only in (None, name):
            print(f"simulate: {name} …", file=sys.stderr, flush=True)
            scenario = simulate(1.0)
            print(f"{scenario.table.markdown()}\n")
            if given.plots:
                given.plots.mkdir(parents=True, exist_ok=True)
                for chart in scenario.charts:
                    (given.plots / f"{chart.name}.svg").write_text(chart.svg())


if __name__ == "__main__":
    main()
