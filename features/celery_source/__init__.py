"""Tasks of other Celery applications as tools (ADR 0105)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(__name__, source=("celery", "source:KIND"))
