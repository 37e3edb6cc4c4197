"""Traces: attempts and runs that are over, sent as spans of OpenTelemetry to a collector (ADR 0042)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(
    __name__,
    hooks={"event_written": "note_event", "attempt_over": "record_attempt", "run_ended": "record_run"},
    may_miss=True,
    store="belongings:STORE_SIDE",
    required="sending:require",
    loops="sending:loops",
    limits="limits:LIMITS",
)
