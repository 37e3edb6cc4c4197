"""Tools that are one request to an HTTP service (ADR 0105)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(__name__, source=("http", "source:KIND"), limits="limits:LIMITS")
