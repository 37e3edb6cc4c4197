"""The follow-up of a script that has changed a run. The API and the workers share this code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palaver.steps.leases import Delivery, Settled
from palaver.store import Store
from palaver.store.steps.due import DueItem

Publish = Callable[[Sequence[Delivery]], object]
"""Sends deliveries to the workers. The sweeper sends lost ones again."""


async def follow_up(store: Store, publish: Publish, moved: Sequence[Settled]) -> None:
    """Publish what is due now, and start the runs whose turn in their conversations has come.

    Such a run may end as it starts, and then the next one has the turn, so this loops until no run is left. If the
    process dies meanwhile, or Redis is away, the sweeper does the rest.
    """
    while moved:
        publish([delivery for settled in moved for delivery in settled.deliveries])
        starts = [DueItem(settled.next_run, "start") for settled in moved if settled.next_run]
        moved = await store.due.sweep(starts) if starts else ()
