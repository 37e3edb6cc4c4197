"""Notices that a worker died, long before its leases run out: the kernel closed its connections to Redis."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from palaver.delivery.publishing import Publish, follow_up
from palaver.errors import ConfigurationError
from palaver.processes.existence import have_ended
from palaver.store import Store
from palaver.store.fleet.first_look import Suspect
from palaver.store.fleet.fleet import DeadWorker, WorkerCensus

log = logging.getLogger("palaver.workers.loops.deaths")

LOOK: Final = 0.5
"""Seconds between two looks of a worker in a small fleet."""
_SOONEST: Final = 0.02
"""Seconds between two looks at least, while a worker is suspected."""
_TRIES: Final = 50
"""As many times it is asked, that far apart, whether a worker that begins is heard itself."""
_SMALL: Final = 20
"""Workers. In a larger fleet each of them looks less often, so that all of them together look no more often."""
PATIENCE: Final = 1.0
"""Seconds for which a worker has to be gone: one that lives is back within tenths of a second. One whose process has
ended for certain does not come back."""
_SLOWER: Final = 10.0
"""A worker has to be gone for so many times as long as a look takes, too: where a look is slow, connecting again is
slower."""
_PARENT: Final = 0.5
"""Seconds more for a child: its parent, if that lives, says sooner and better what became of the call."""
_AT_ONCE: Final = 200
"""Leases that are ended before what follows from them is published."""


class DeathWatch:
    """Looks for dead workers again and again, and ends their leases (ADR 0016). Any number may.

    Whatever it believes, it cannot take a lease away that was claimed or renewed since it suspected its worker.
    """

    def __init__(
        self,
        store: Store,
        publish: Publish,
        worker_id: str,
        lease_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        ended: Callable[[str], bool] = have_ended,
        first_look: Callable[[], Sequence[Suspect]] = tuple,
    ) -> None:
        self._store = store
        self._publish = publish
        self._worker_id = worker_id
        self._lease = lease_seconds
        self._clock = clock
        self._ended = ended
        self._first_look: Callable[[], Sequence[Suspect]] | None = first_look
        self._suspects: dict[str, Suspect] = {}
        self._patience = PATIENCE
        self._cut_until = 0.0

    async def run(self) -> None:
        """Watch, for ever."""
        try:
            await self.begin()
            while True:
                pause = await self.look()
                await asyncio.sleep(pause)
        except ConfigurationError as error:
            log.warning("%s", error)
            await asyncio.Event().wait()
        except Exception:
            # Redis was away for this worker, and perhaps for others, which are not back yet.
            self.was_cut()
            raise

    async def begin(self) -> None:
        """Go on from the first look of this process, once it hears cancels itself: a worker that does not judges
        none."""
        for _ in range(_TRIES):
            if await self._store.fleet.is_heard(self._worker_id):
                break
            await asyncio.sleep(_SOONEST)
        first_look, self._first_look = self._first_look, None
        if first_look is not None:
            # Not sooner: what it looked on with has to last until another connection of this worker is watched.
            seen = await asyncio.to_thread(first_look)
            if self._clock() >= self._cut_until:
                self._suspects = {suspect.first_seen.id: suspect for suspect in seen}

    def was_cut(self) -> None:
        """This worker itself lost its connections, and perhaps all did. No worker is taken for dead for the length of a
        lease, as after an outage (ADR 0014)."""
        self._cut_until = self._clock() + self._lease
        self._suspects.clear()

    async def look(self) -> float:
        """Look once, and act on who is dead. Returns the seconds until the next look."""
        began = self._clock()
        roll = await self._store.fleet.call_roll(self._worker_id)
        now = self._clock()
        self._patience = PATIENCE + _SLOWER * (now - began)
        for gone in self._dead(roll, now):
            # Only one of the workers that saw it goes on.
            if await self._store.fleet.leave(gone.id):
                await self._end_leases(gone)
        if self._suspects:
            ripe = min(suspect.since + self._needed(suspect.first_seen) for suspect in self._suspects.values())
            return min(LOOK, max(_SOONEST, ripe - self._clock()))
        return LOOK * max(1.0, roll.known / _SMALL)

    def _needed(self, gone: DeadWorker) -> float:
        """Seconds for which this worker has to be gone."""
        return self._patience + (_PARENT if gone.child else 0.0)

    def _dead(self, roll: WorkerCensus, now: float) -> list[DeadWorker]:
        """Return the workers that are dead by what was seen, as they were when they were first suspected."""
        before, self._suspects = self._suspects, {}
        if now < self._cut_until:
            return []
        dead = []
        for gone in roll.gone:
            suspect = before.get(gone.id)
            if suspect is None or suspect.first_seen.connection != gone.connection:
                suspect = Suspect(gone, now)
            if now - suspect.since >= self._needed(gone) or self._ended(gone.processes):
                dead.append(suspect.first_seen)
            else:
                self._suspects[gone.id] = suspect
        return dead

    async def _end_leases(self, gone: DeadWorker) -> None:
        held = await self._store.due.held(gone.id, gone.unrenewed_before)
        log.warning("worker %s is gone; %d steps go on without it", gone.id, len(held))
        for begin in range(0, len(held), _AT_ONCE):
            settled = await self._store.due.sweep(
                held[begin : begin + _AT_ONCE], worker=gone.id, unrenewed_before=gone.unrenewed_before
            )
            await follow_up(self._store, self._publish, settled)
