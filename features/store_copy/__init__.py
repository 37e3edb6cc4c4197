"""Copies of a whole store at another server or cluster (ADR 0126)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(
    __name__,
    commands="commands:COMMANDS",
    variables=("PALAVER_COPY_FROM", "PALAVER_COPY_FROM_FILE", "PALAVER_COPY_TO", "PALAVER_COPY_TO_FILE"),
)
