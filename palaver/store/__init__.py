"""The only code that speaks Redis: one typed method for each script, grouped by who uses it."""

from __future__ import annotations

from palaver.store.store import Store

__all__ = ["Store"]
