"""Notices when a worker's loop stands still: meanwhile no lease is renewed, no cancel heard, no delta written.

The garbage collector says when it begins and ends, in whatever thread. Of anything else that holds the loop, or the
whole process, a timer that comes too late tells.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from palaver.processes.tasks import end
from palaver.telemetry.metrics import LEAST_STOP, StopCause

log = logging.getLogger("palaver.workers.loops.stops")

_BUSY: Final = 0.02
"""Seconds between two looks while steps are in flight: a stop is seen as so much shorter, at most."""
_IDLE: Final = 0.5
"""The same while there are none."""
_LONG: Final = 0.1
"""Seconds of a stop that has a line in the log."""
_APART: Final = 10.0
"""Seconds between two such lines."""


@asynccontextmanager
async def stops_noticed(observe: Callable[[StopCause, float], None], busy: Callable[[], object]) -> AsyncIterator[None]:
    """Within the block ``observe`` hears of each stop of this loop; it is looked at more often while it is ``busy``."""
    stops = LoopStops(observe)
    gc.callbacks.append(stops.collecting)
    turning = asyncio.create_task(_turn_for_ever(stops, busy))
    try:
        yield
    finally:
        gc.callbacks.remove(stops.collecting)
        await end(turning)


async def _turn_for_ever(stops: LoopStops, busy: Callable[[], object]) -> None:
    clock = time.monotonic
    while True:
        due = clock() + (_BUSY if busy() else _IDLE)
        stops.wait()
        await asyncio.sleep(due - clock())
        stops.turn(clock() - due)


class LoopStops:
    """Tells stops by their cause. Collections are noted while they go on, and told when the loop comes round."""

    def __init__(
        self, observe: Callable[[StopCause, float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._observe = observe
        self._clock = clock
        self._began = 0.0
        self._collecting = 0.0
        """Seconds of all collections since the loop last came round."""
        self._collections: list[float] = []
        """Those of them that are stops."""
        self._unlogged: list[tuple[float, StopCause]] = []
        self._logged_at = float("-inf")

    def collecting(self, phase: str, info: dict[str, Any]) -> None:
        """The collector begins, or has ended. It may have interrupted anything, a line of the log, too."""
        if phase == "start":
            self._began = self._clock()
            return
        seconds = self._clock() - self._began
        self._collecting += seconds
        if seconds >= LEAST_STOP:
            self._collections.append(seconds)

    def wait(self) -> None:
        """The loop is about to wait for its timer."""
        self._collecting = 0.0

    def turn(self, late: float) -> None:
        """The loop has come round, so many seconds after its timer was due."""
        collections, self._collections = self._collections, []
        for seconds in collections:
            self._note("collection", seconds)
        if (other := late - self._collecting) >= LEAST_STOP:
            self._note("other", other)
        if self._unlogged and self._clock() - self._logged_at >= _APART:
            self._log()

    def _note(self, cause: StopCause, seconds: float) -> None:
        self._observe(cause, seconds)
        if seconds >= _LONG:
            self._unlogged.append((seconds, cause))

    def _log(self) -> None:
        seconds, cause = max(self._unlogged)
        more = f", the longest of {len(self._unlogged)} stops" if len(self._unlogged) > 1 else ""
        log.warning("the loop stood still for %.0f ms (%s)%s", 1e3 * seconds, _SHOWN[cause], more)
        self._unlogged, self._logged_at = [], self._clock()


_SHOWN: Final[dict[StopCause, str]] = {
    "collection": "garbage collection",
    "other": "code that did not wait, or a machine with too much to do",
}
