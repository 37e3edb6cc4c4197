"""Ending workers that hang, so that they are started again: what `WatchdogSec` of a unit does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from signal import SIGKILL
from typing import Final

from .child import ChildCommand

_PATIENCE: Final = 60.0
"""Seconds without progress. A worker reports it every five, and holds up nothing for longer than half of this."""


class Stalls:
    """Looks at these children, as far as they report progress."""

    def __init__(self, children: Iterable[ChildCommand], report: Callable[[str], None]) -> None:
        self._children = [child for child in children if child.progress]
        self._report = report
        self._seen: dict[str, tuple[float | None, float]] = {}
        """What each had last, and since when."""

    def look(self, now: float) -> None:
        """Kill those that have made none for a minute at ``now`` (monotonic: no time in which the machine slept)."""
        for child in self._children:
            made = child.progressed_at if child.running else None
            last, since = self._seen.get(child.name, (None, now))
            if made is None or made != last:
                self._seen[child.name] = made, now
            elif now - since > _PATIENCE:
                self._report(f"{child.name} has made no progress for {_PATIENCE:g} s; it is killed")
                child.kill(SIGKILL)
