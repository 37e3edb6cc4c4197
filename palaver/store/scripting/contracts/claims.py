"""Replies about work that one process claims: a tick of a schedule, a batch."""

from __future__ import annotations

from palaver.late import dataclass


@dataclass(frozen=True, slots=True)
class TickBusy:
    """Another process carries it out."""


@dataclass(frozen=True, slots=True)
class StaleClaim:
    """Another process has it by now: nothing was written."""
