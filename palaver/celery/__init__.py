"""For a Celery application whose tasks are tools: ``report(app)``, one line in its workers (ADR 0105)."""

from __future__ import annotations

from .reporting import report

__all__ = ["report"]
