"""Schedules: runs that begin at times. Each tick is carried out once, by any model worker."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(
    __name__,
    hash_tag="{palaver:schedules}",
    scripts="contract:SCRIPTS",
    store="belongings:STORE_SIDE",
    planned="scheduler:Scheduler",
    routes="routes",
    problems="problems:PROBLEMS",
    commands="commands:COMMANDS",
    limits="limits:LIMITS",
)
