"""Tools that are one request to an HTTP service (ADR 0110)."""

from __future__ import annotations

from .source import KIND

__all__ = ["KIND"]
