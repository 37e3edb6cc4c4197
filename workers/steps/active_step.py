"""A step that this process works on, so that a cancel, a lost lease or a drain can interrupt it."""

from __future__ import annotations

import asyncio
import time
from enum import Enum, auto

from palaver.steps.leases import Lease
from palaver.vocabulary.ids import call_of

from ..models.call_clock import CallProgress
from ..sources.containment import cancel


class InterruptReason(Enum):
    """Why a step's function is interrupted."""

    CANCELLED = auto()
    """The run is being cancelled: settle the partial answer."""
    LOST = auto()
    """The lease is lost: drop the work."""
    PAUSED = auto()
    """The run is to be paused now: hand the lease back."""
    DRAIN = auto()
    """The worker stops: hand the lease back."""


class ActiveStep:
    """A step that this process works on, from before its claim until after it is settled."""

    def __init__(self, run_id: str, step: str, *, behind: ActiveStep | None = None) -> None:
        """``behind`` is the step of the run that ends in its place."""
        self.run_id = run_id
        self.step = step
        self.in_place: int = behind.in_place + (call_of(step) is None) if behind else 0
        """The number of model steps of the run before it that this process went on from, one behind the other."""
        self.in_place_since: float = behind.in_place_since if behind else time.monotonic()
        """Time at which the first of them began (monotonic)."""
        self.reason: InterruptReason | None = None
        self.lease: Lease | None = None
        """From its claim on; of a step that is begun in place, from before its task."""
        self.begun = False
        self.began_at = time.monotonic()
        self.cancelled_at: float | None = None
        """Time at which this process heard that the run is cancelled (monotonic, as the one above)."""
        self.progress = CallProgress()
        # Set before the claim is sent, so that the lease is never believed to last longer than it does.
        self._renewed_at = time.monotonic()
        self._task: asyncio.Task[object] | None = None

    def renewed(self, requested_at: float) -> None:
        """Note that the lease was granted or prolonged by a request sent at ``requested_at`` (monotonic). It is counted
        from then; in Redis it begins a little later."""
        self._renewed_at = requested_at

    @property
    def working(self) -> bool:
        """True while the step's function is running."""
        return self._task is not None

    @property
    def unheard(self) -> float:
        """Seconds since the last confirmed renewal, including the time for which this process was stopped. After the
        length of a lease another worker may have the step."""
        return time.monotonic() - self._renewed_at

    def begin(self, lease: Lease) -> None:
        """The step was claimed, and from here on its function may be interrupted.

        Raises:
            asyncio.CancelledError: it was interrupted before its function began.
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
        """Stop the function, now or as soon as it begins. A second interruption has no effect, except that a cancel
        replaces a pause or a drain: it keeps the partial answer."""
        if reason is InterruptReason.CANCELLED and self.cancelled_at is None:
            self.cancelled_at = time.monotonic()
        if self.reason is None:
            self.reason = reason
            if self._task is not None and reason is InterruptReason.CANCELLED:
                cancel(self._task)
            elif self._task is not None:
                self._task.cancel()
        elif reason is InterruptReason.CANCELLED and self.reason is not InterruptReason.LOST:
            self.reason = reason
