"""Tasks of other Celery applications as tools (ADR 0109)."""

from __future__ import annotations

from .source import KIND

__all__ = ["KIND"]
