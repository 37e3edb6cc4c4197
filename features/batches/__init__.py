"""Batches: many runs over a list of inputs, begun behind a window (ADR 0118)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature, OperationGroup

FEATURE: Final = Feature(
    __name__,
    hash_tag="{palaver:batches}",
    scripts="contract:SCRIPTS",
    store="belongings:STORE_SIDE",
    events=("batch.ended",),
    planned="runner:BatchRunner",
    routes="routes",
    group=OperationGroup("batches", "Many runs over a list of inputs, and a table of what came of them."),
    problems="problems:PROBLEMS",
    commands="commands:COMMANDS",
    limits="limits:LIMITS",
)
