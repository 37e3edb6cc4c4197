"""The vocabulary of events: everything that a watcher of a run may be told."""

from __future__ import annotations

from palaver.events.kinds import EventKind, Kept

__all__ = ["EventKind", "Kept"]
