"""Converts the replies of scripts that were to change a run for their callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from palaver.errors import NotDurable, PalaverError
from palaver.steps.leases import Delivery, Settled
from palaver.store.scripting.contracts.replies import DueDelivery, Moved

R = TypeVar("R")
T = TypeVar("T")


async def durable_reply(reply: Awaitable[R], read: Callable[[R], T]) -> T:
    """Return what ``read`` makes of the reply of `Scripts.run_durably`.

    Raises what ``read`` raises, and:
        NotDurable: its ``reply`` is what would have been answered; None if that is a refusal.
    """
    try:
        return read(await reply)
    except NotDurable as unsafe:
        done = outcome(read, unsafe.reply)
        unsafe.reply = None if isinstance(done, Exception) else done
        raise


def outcome(read: Callable[[R], T], reply: R | Exception) -> T | Exception:
    """Return what ``read`` makes of a reply, or the exception that it raises, or that is in the reply's place."""
    if isinstance(reply, Exception):
        return reply
    try:
        return read(reply)
    except PalaverError as hindrance:
        return hindrance


def settled(moved: Moved, run_id: str, conversation_id: str) -> Settled:
    """The status of the run now, and the deliveries to publish."""
    return Settled(moved.status, deliveries(moved.deliveries, run_id, conversation_id), moved.next_run)


def deliveries(due: Iterable[DueDelivery], run_id: str, conversation_id: str) -> tuple[Delivery, ...]:
    """The deliveries to publish, with their ids."""
    return tuple(
        Delivery(delivery.queue, run_id, conversation_id, delivery.step, delivery.number, delivery.title)
        for delivery in due
    )
