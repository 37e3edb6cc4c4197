"""Starting what has exited again, later and later if it keeps exiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

# A process that crashes at start must neither fill its log nor keep a developer waiting after the fix.
FIRST_DELAY = 1.0
LONGEST_DELAY = 30.0
FORGIVEN_AFTER = 60.0


class Process(Protocol):
    """A process that can be watched: a child of the stack, or its Redis."""

    @property
    def running(self) -> bool: ...

    def start(self) -> None: ...


@dataclass
class _Watch:
    """Times are monotonic seconds; `due_at` is set while a restart is waiting."""

    started_at: float
    delay: float = FIRST_DELAY
    due_at: float | None = None


class Supervisor:
    """Restarts `processes`, which run now, whenever `look` finds them ended and their back-off is over."""

    def __init__(self, processes: Mapping[str, Process], report: Callable[[str], None], now: float) -> None:
        self._processes = dict(processes)
        self._report = report
        self._watches = {name: _Watch(started_at=now) for name in processes}

    def look(self, now: float) -> None:
        """Plan a restart of each process that has ended since the last look; start those that are due at `now`
        (monotonic)."""
        for name, process in self._processes.items():
            watch = self._watches[name]
            if process.running:
                continue
            if watch.due_at is None:
                self._plan(name, watch, now)
            elif now >= watch.due_at:
                watch.started_at, watch.due_at = now, None
                try:
                    process.start()
                except (OSError, RuntimeError) as error:
                    self._report(f"{name} could not be started: {error}")

    def _plan(self, name: str, watch: _Watch, now: float) -> None:
        if now - watch.started_at > FORGIVEN_AFTER:
            watch.delay = FIRST_DELAY
        self._report(f"{name} has ended; starting it again in {watch.delay:g} s")
        watch.due_at = now + watch.delay
        watch.delay = min(watch.delay * 2, LONGEST_DELAY)
