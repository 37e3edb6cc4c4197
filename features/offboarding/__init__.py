"""Tenants that leave: all that one has, as lines of JSON, and gone (ADR 0094)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(
    __name__,
    scripts="contract:SCRIPTS",
    routes="routes",
    problems="problems:PROBLEMS",
    tenant_verbs="commands:VERBS",
)
