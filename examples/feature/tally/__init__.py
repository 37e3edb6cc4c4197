"""Tally: how the runs of each tenant ended, counted in the script that ends them."""

from __future__ import annotations

from palaver.feature import Feature

FEATURE = Feature(
    __name__,
    hooks={"run_ended": "tally_end"},
    store="store:SIDE",
    routes="routes",
    metrics="store:METRICS",
    commands="commands:COMMANDS",
    variables=("PALAVER_TALLY_HIDDEN",),
)
