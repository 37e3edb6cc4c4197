"""Webhooks: addresses of a tenant that hear what becomes of its runs (ADR 0118)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature, OperationGroup

FEATURE: Final = Feature(
    __name__,
    hash_tag="{palaver:webhooks}",
    scripts="contract:SCRIPTS",
    hooks={"run_submitted": "mark_run", "run_ended": "tell_end", "action_required": "tell_action"},
    names="contract:NAMES",
    store="belongings:STORE_SIDE",
    loops="delivering:loops",
    queues="keeping:in_queues",
    routes="routes",
    group=OperationGroup("webhooks", "Addresses that hear what becomes of runs, and what was sent to them."),
    problems="problems:PROBLEMS",
    commands="commands:COMMANDS",
    limits="limits:LIMITS",
    metrics="metrics:METRICS",
)
