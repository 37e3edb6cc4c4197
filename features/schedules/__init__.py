"""Schedules: runs that begin at times, each tick of which is carried out once, by any model worker."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature, OperationGroup

FEATURE: Final = Feature(
    __name__,
    hash_tag="{palaver:schedules}",
    scripts="contract:SCRIPTS",
    store="belongings:STORE_SIDE",
    planned="scheduler:Scheduler",
    routes="routes",
    group=OperationGroup("schedules", "Runs that are submitted at times.", after="agents"),
    problems="problems:PROBLEMS",
    commands="commands:COMMANDS",
    limits="limits:LIMITS",
    metrics="metrics:METRICS",
)
