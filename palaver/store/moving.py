"""What scripts answer that have moved a run, as callers get it."""

from __future__ import annotations

from collections.abc import Iterable

from palaver.leases import Delivery, Settled
from palaver.store.contracts.replies import DueDelivery, Moved


def settled(moved: Moved, run_id: str, conversation_id: str) -> Settled:
    """Where the run is now, and what to publish."""
    return Settled(moved.status, deliveries(moved.deliveries, run_id, conversation_id), moved.next_run)


def deliveries(due: Iterable[DueDelivery], run_id: str, conversation_id: str) -> tuple[Delivery, ...]:
    """What is to be published, with the ids that it carries."""
    return tuple(Delivery(each.queue, run_id, conversation_id, each.step, each.number) for each in due)
