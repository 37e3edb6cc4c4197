"""Going on in place: who settles a model step claims the next one of its run with it, and begins that at once.

Nothing is published, waits in a queue or has to be claimed. To everybody who looks each of these steps is a Celery task
of its own (workers/broker/following.py), and under its own lease. The store decides, in the script that settles: only
a step that is ready goes on, and only while nobody waits for a worker. Here are the bounds, and what a cancel finds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from palaver.config.settings import Settings
from palaver.steps.leases import Delivery, Lease, Place
from palaver.steps.verdicts import Continue, Verdict
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.step_kinds import MODEL

from .active_step import ActiveStep
from .conversations import CachedConversation


class Pool(Protocol):
    """The pool that the tasks of this process run on."""

    def can_go_on(self) -> bool:
        """Tell whether a task may follow the current one in its place."""

    def go_on(self, delivery: Delivery) -> None:
        """Begin the task of ``delivery`` in the place of the current one, once that has ended."""


class InPlace:
    """The places of this process's model steps, and what begins in them."""

    def __init__(self, settings: Settings, worker_id: str, capacity: int, active: set[ActiveStep]) -> None:
        self.pool: Pool | None = None
        """None where each step needs a delivery."""
        self._most = settings.in_place_steps
        self._longest = settings.in_place_seconds
        self._worker_id = worker_id
        self._capacity = capacity
        self._active = active
        self._following: dict[tuple[str, str], ActiveStep] = {}
        """Those that are offered a place, or have one and have not begun."""
        self._claiming = 0

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Within it, a step waits to be claimed: it may be one of those that the store sees waiting."""
        self._claiming += 1
        try:
            yield
        finally:
            self._claiming -= 1

    @contextmanager
    def offer(self, active: ActiveStep, verdict: Verdict, known: CachedConversation | None) -> Iterator[Place | None]:
        """Offer the place of a step to the next one of its run, while the ``verdict`` is settled; None if it must not
        go on here. As from before any claim, a cancel of the run finds the next step from now on."""
        if known is None or not self._may_go_on(active, verdict):
            yield None
            return
        following = ActiveStep(active.run_id, str(int(active.step) + 1), behind=active)
        self._active.add(following)
        self._following[following.run_id, following.step] = following
        try:
            yield Place(self._worker_id, secrets.token_hex(8), known.position, known.position_at, self._room)
        finally:
            if following.lease is None:
                self._active.remove(following)
                del self._following[following.run_id, following.step]

    @property
    def _room(self) -> int:
        """Steps that this process could claim now."""
        leased = len(self._active) - self._claiming - len(self._following)
        return max(0, self._capacity - leased)

    def go_on(self, lease: Lease) -> None:
        """The offer was taken: the next step begins, under this lease, when the task that settled ends."""
        assert self.pool is not None  # it was offered
        self._following[lease.run_id, lease.step].lease = lease
        self.pool.go_on(Delivery(MODEL.queue, lease.run_id, lease.conversation_id, lease.step, number=1))

    def begin(self, run_id: str, step: str) -> ActiveStep | None:
        """The step that begins now, if this process has claimed it already."""
        active = self._following.pop((run_id, step), None)
        if active is not None:
            active.began_at = time.monotonic()
        return active

    def _may_go_on(self, active: ActiveStep, verdict: Verdict) -> bool:
        if self.pool is None or not isinstance(verdict, Continue) or verdict.calls or call_of(active.step) is not None:
            return False
        soon = time.monotonic() - active.in_place_since < self._longest
        return active.in_place < self._most and soon and self.pool.can_go_on()
