"""Statistics: what became of runs, steps and models of late, told by minutes for a tenant or for all (ADR 0042)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(
    __name__,
    scripts="contract:SCRIPTS",
    hooks={
        "run_submitted": "note_submitted",
        "run_ended": "note_end",
        "step_leased": "note_wait",
        "model_used": "note_use",
        "lease_over": "note_lease",
    },
    may_miss=True,
    store="belongings:STORE_SIDE",
    loops="statistics:loops",
    routes="routes",
    commands="commands:COMMANDS",
    limits="limits:LIMITS",
)
