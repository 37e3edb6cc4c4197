"""Acts on what is due: retries, leases that ended, starts, deadlines, and deliveries that got lost. Any number may
run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import ceil
from typing import Final

from palaver.delivery.publishing import LoopPublisher, Publish, deliver_now, follow_up
from palaver.processes.failpoints import failpoint
from palaver.store import Store
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.step_kinds import QUEUES, broker_queue

log = logging.getLogger("palaver.workers.loops.sweeper")

_TICK: Final = 0.25
"""The longest time between two sweeps, in seconds; entries that are due sooner are handled on time."""
_SHORTEST: Final = 0.01
_UNCLAIMED_AFTER: Final = 1.0
"""Seconds after which a delivery that was not claimed may have been lost."""
_SURELY_AFTER: Final = 0.5
"""The same while the broker is empty: then the delivery can only be on its way through a worker."""
_FORGET: Final = 1.0
"""Seconds between two looks for runs whose retention is over, for what only seems to lack a worker, and for what the
caps of its tenant allow by now."""
_LOOK: Final = 1.0
"""Seconds between two looks for the workers of queues that tools name."""
_COUNT: Final = 1.0
"""Seconds between two counts of the deliveries in many shards."""
_AT_ONCE: Final = 16
"""Deliveries that are sent again at once."""


class Sweeper:
    """Sweeps the due and ready indexes again and again."""

    def __init__(
        self,
        store: Store,
        publisher: LoopPublisher,
        publish: Publish,
        lease_seconds: float,
        worker_id: str,
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._publisher = publisher
        self._publish = publish
        self._lease = lease_seconds
        self._looked: float | None = None
        self._forgot = 0.0
        self._counted: dict[str, float] = {}
        """When the deliveries of each queue were counted last."""
        self._own: tuple[str, ...] = ()
        """The queues that tools name, as they were seen last."""

    async def run(self) -> None:
        """Sweep, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            before = self._looked
            await self._store.rounds.share(self._worker_id)
            things, upcoming = await self._store.due.due()
            self._looked = clock()
            if before is not None and self._looked - before > self._lease / 2:
                # Redis was away, so no worker could renew its leases. Living workers do so now, before a lease is taken
                # away: otherwise an outage would repeat every step in flight.
                log.warning("no answer from Redis for %.1f s; sweeping on after a lease", self._looked - before)
                await asyncio.sleep(self._lease)
                self._looked = clock()
                continue
            things = things if await self._sweep(things) else []
            if clock() - self._forgot > _FORGET:
                self._publish(await self._store.due.fill())
                await self._store.due.forget_expired()
                await self._store.due.forget_conversations()
                await self._store.lacking.forget_stale()
                await self._begin_allowed()
                self._forgot = clock()
            if not things:
                await asyncio.sleep(max(_SHORTEST, min(_TICK, upcoming)))

    async def repair(self) -> None:
        """Send lost deliveries again, for ever. This is separate from the sweep, because a broker may be slow to report
        its depth."""
        while True:
            for queue in (*QUEUES, *self._own):
                await self._repair(queue)
            await asyncio.sleep(_TICK)

    async def look_for_workers(self) -> None:
        """Say on runs whether workers take from the queues that tools name, for ever."""
        while True:
            self._own = await self._store.queues.own()
            taken_from = await self._store.fleet.taken_from() if self._own else frozenset()
            for queue in self._own:
                moved = await self._store.due.attend(queue, attended=queue in taken_from)
                await follow_up(self._store, self._publish, moved)
            await asyncio.sleep(_LOOK)

    async def _sweep(self, things: Sequence[DueItem], unclaimed_after: float = _UNCLAIMED_AFTER) -> bool:
        """Act on ``things`` and on what follows. Returns whether there was anything to do."""
        if not things:
            return False
        failpoint("sweep.found")
        settled = await self._store.due.sweep(things, unclaimed_after=unclaimed_after)
        failpoint("sweep.settled")
        await follow_up(self._store, self._publish, settled)
        return bool(settled)

    async def _begin_allowed(self) -> None:
        """Deliver steps that waited for a cap of their tenant."""
        allowed = await self._store.caps.allowed(_FORGET / 2)
        if allowed:
            await deliver_now(self._store, self._publish, allowed)

    async def _repair(self, queue: str) -> None:
        """Send unclaimed deliveries again, if there are more of them than messages in the broker: those that wait there
        are not lost, and repeats would multiply them (800 runs never finished without this)."""
        unclaimed = await self._store.due.unclaimed(queue, _SURELY_AFTER, _AT_ONCE)
        if not unclaimed:
            return
        waiting = await self._publisher.depth(broker_queue(queue))
        if waiting:
            if not self._counts_again(queue):
                return
            # Others who share the shards look for their part of them.
            lost = ceil((await self._store.due.delivered(queue) - waiting) / self._store.rounds.sweepers)
            unclaimed = unclaimed[: max(0, lost)]
        # The script checks again, and does not touch deliveries that are too young.
        await self._sweep(unclaimed, _UNCLAIMED_AFTER if waiting else _SURELY_AFTER)

    def _counts_again(self, queue: str) -> bool:
        """Tell whether to count what is delivered to a queue. It is asked of every shard: where they are many, all who
        share them do so once a second together."""
        rounds, now = self._store.rounds, asyncio.get_running_loop().time()
        if not rounds.few and now < self._counted.get(queue, 0.0) + _COUNT * rounds.sweepers:
            return False
        self._counted[queue] = now
        return True
