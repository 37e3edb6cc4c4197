"""A step that this process works on: the place where a cancel, a lost lease or a drain finds it."""

from __future__ import annotations

import asyncio
import time
from enum import Enum, auto

from palaver.leases import Lease


class InterruptReason(Enum):
    """Why a step's function is interrupted."""

    CANCELLED = auto()
    """The run is being cancelled: settle what there is."""
    LOST = auto()
    """The lease is not this worker's any more: leave it."""
    PAUSED = auto()
    """The run is to be paused now: hand the lease back."""
    DRAIN = auto()
    """The worker stops: hand the lease back."""


class ActiveStep:
    """A step that this process works on, from before its claim until after it is settled."""

    def __init__(self, run_id: str, step: str) -> None:
        self.run_id = run_id
        self.step = step
        self.reason: InterruptReason | None = None
        self.lease: Lease | None = None
        self.begun = False
        # Before the lease is asked for: it is never taken for longer than it is.
        self._renewed_at = time.monotonic()
        self._task: asyncio.Task[object] | None = None

    def renewed(self, asked_at: float) -> None:
        """The lease was granted or prolonged, as it was asked for at ``asked_at`` (monotonic): it lasts from then, or
        from a little later."""
        self._renewed_at = asked_at

    @property
    def working(self) -> bool:
        """Whether there is something to interrupt."""
        return self._task is not None

    @property
    def unheard(self) -> float:
        """Seconds since the lease was last renewed; beyond its length somebody else may have it. Also
        those for which this process was stopped."""
        return time.monotonic() - self._renewed_at

    def begin(self, lease: Lease) -> None:
        """The step was claimed, and from here on its function may be interrupted.

        Raises:
            asyncio.CancelledError: it was interrupted already, when there was nothing to interrupt yet.
        """
        self.lease = lease
        self._task = asyncio.current_task()
        if self.reason is not None:
            raise asyncio.CancelledError
        self.begun = True

    def end(self) -> None:
        """The function is over; what follows must not be interrupted."""
        self._task = None

    def interrupt(self, reason: InterruptReason) -> None:
        """Stop the function, now or as soon as it begins; a second time does nothing, but that a cancel takes over from
        a pause or a drain: it keeps what there is."""
        if self.reason is None:
            self.reason = reason
            if self._task is not None:
                self._task.cancel()
        elif reason is InterruptReason.CANCELLED and self.reason is not InterruptReason.LOST:
            self.reason = reason
