"""The archive: what was said, kept in a database (ADR 0147)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(
    __name__,
    switch="PALAVER_ARCHIVE_URL",
    variables=("PALAVER_ARCHIVE_URL", "PALAVER_ARCHIVE_URL_FILE", "PALAVER_ARCHIVE_KEEP"),
    scripts="contract:SCRIPTS",
    hooks={
        "conversation_idle": "note_rest",
        "log_grows": "note_growth",
        "ended_run_changed": "note_run_changed",
        "run_retried": "hold_retried",
        "conversation_changed": "note_change",
        "run_deleted": "note_run_deleted",
        "conversation_deleted": "note_deleted",
    },
    holds=True,
    store="belongings:STORE_SIDE",
    required="opening:require",
    loops="opening:loops",
    recall="opening:memory_of",
    checks="opening:findings_of",
    beside="opening:beside",
    commands="commands:COMMANDS",
    metrics="metrics:METRICS",
)
