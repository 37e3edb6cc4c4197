"""Converts the replies of scripts that were to change a run for their callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from palaver.errors import NotDurable, PalaverError
from palaver.steps.leases import Settled
from palaver.store.scripting.contracts.replies import Moved

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


def settled(moved: Moved) -> Settled:
    """The status of the run now, and the deliveries to publish."""
    return Settled(moved.status, moved.deliveries, moved.next_run, due=moved.due)
