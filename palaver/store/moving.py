"""Converts the replies of scripts that have changed a run for their callers."""

from __future__ import annotations

from collections.abc import Iterable

from palaver.leases import Delivery, Settled
from palaver.store.contracts.replies import DueDelivery, Moved


def settled(moved: Moved, run_id: str, conversation_id: str) -> Settled:
    """The status of the run now, and the deliveries to publish."""
    return Settled(moved.status, deliveries(moved.deliveries, run_id, conversation_id), moved.next_run)


def deliveries(due: Iterable[DueDelivery], run_id: str, conversation_id: str) -> tuple[Delivery, ...]:
    """The deliveries to publish, with their ids."""
    return tuple(Delivery(each.queue, run_id, conversation_id, each.step, each.number, each.title) for each in due)
