"""A step in hand: the place where a cancel, a lost lease or a drain finds it."""

from __future__ import annotations

import asyncio
from enum import Enum, auto


class Why(Enum):
    """Why a step's function is interrupted."""

    CANCELLED = auto()
    """The run is being cancelled: settle what there is."""
    LOST = auto()
    """The lease is not this worker's any more: leave it."""
    PAUSED = auto()
    """The run is to be paused now: hand the lease back."""
    DRAIN = auto()
    """The worker stops: hand the lease back."""


class Held:
    """A step that this process works on, from before its claim until after it is settled."""

    def __init__(self, run_id: str, step: str) -> None:
        self.run_id = run_id
        self.step = step
        self.why: Why | None = None
        self.leased = False
        self.begun = False
        self._task: asyncio.Task[object] | None = None

    def begin(self) -> None:
        """From here on the step's function may be interrupted.

        Raises:
            asyncio.CancelledError: it was interrupted already, when there was nothing to interrupt yet.
        """
        self.leased = True
        self._task = asyncio.current_task()
        if self.why is not None:
            raise asyncio.CancelledError
        self.begun = True

    def end(self) -> None:
        """The function is over; what follows must not be interrupted."""
        self._task = None

    def interrupt(self, why: Why) -> None:
        """Stop the function, now or as soon as it begins; a second time does nothing, but that a cancel takes over from
        a pause or a drain: it keeps what there is."""
        if self.why is None:
            self.why = why
            if self._task is not None:
                self._task.cancel()
        elif why is Why.CANCELLED and self.why is not Why.LOST:
            self.why = why
