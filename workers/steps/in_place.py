"""Going on in place: who settles a model step claims the next one of its run with it, and begins that at once.

Nothing is published, waits in a queue or has to be claimed. To everybody who looks each of these steps is a Celery task
of its own (workers/broker/jobs.py), and under its own lease. The store decides, in the script that settles: only
a step that is ready goes on, and only while no step waits for a worker. Here are the bounds, and what a cancel finds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

from palaver.config.settings import Settings
from palaver.steps.leases import Delivery, Lease, OfferedPlace
from palaver.steps.verdicts import Continue, Verdict
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.step_kinds import MODEL

from .active_step import ActiveStep
from .conversations import CachedConversation


class PlacePool(Protocol):
    """The pool that the tasks of this process run on."""

    def can_go_on(self) -> bool:
        """Tell whether a task may follow the current one in its place."""

    def go_on(self, delivery: Delivery) -> None:
        """Begin the task of ``delivery`` in the place of the current one, once that has ended."""


class PlaceOffer:
    """The offer of a step that is settled to the next one of its run."""

    def __init__(self, place: OfferedPlace | None = None, following: ActiveStep | None = None) -> None:
        self.place = place
        """None if the run must not go on here."""
        self.following = following
        """The step that would begin here."""


class InPlace:
    """The places of this process's model steps, and what begins in them."""

    def __init__(self, settings: Settings, worker_id: str, capacity: int, active: set[ActiveStep]) -> None:
        self.pool: PlacePool | None = None
        """None where each step needs a delivery."""
        self._most = settings.in_place_steps
        self._longest = settings.in_place_seconds
        self._worker_id = worker_id
        self._lease = settings.lease_seconds
        self._capacity = capacity
        self._active = active
        self._upcoming: set[ActiveStep] = set()
        """Those that are offered a place, or have one and have not begun."""
        self._taken: dict[tuple[str, str], ActiveStep] = {}
        self._claiming = 0
        self._nonces = count(1)
        """The id of the worker is of this process alone, so they only have to differ within it."""

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Within it, a step waits to be claimed: it may be one of those that the store sees waiting."""
        self._claiming += 1
        try:
            yield
        finally:
            self._claiming -= 1

    @contextmanager
    def offer(self, active: ActiveStep, verdict: Verdict, known: CachedConversation | None) -> Iterator[PlaceOffer]:
        """Offer the place of a step to the next one of its run, while its ``verdict`` is settled. As from before any
        claim, a cancel of the run finds the next step from now on."""
        if known is None or not self._may_go_on(active, verdict):
            yield PlaceOffer()
            return
        following = ActiveStep(active.run_id, str(int(active.step) + 1), behind=active)
        self._active.add(following)
        self._upcoming.add(following)
        nonce = str(next(self._nonces))
        place = OfferedPlace(self._worker_id, nonce, self._lease, known.position, known.position_at, self._room)
        try:
            yield PlaceOffer(place, following)
        finally:
            if following.lease is None:
                self._active.discard(following)
                self._upcoming.remove(following)

    def go_on(self, offer: PlaceOffer, lease: Lease) -> None:
        """The offer was taken: the next step begins, under this lease, when the task that settled ends."""
        following, pool = offer.following, self.pool
        assert following is not None, "a place was offered"
        assert pool is not None, "by a process whose pool can go on"
        following.lease = lease
        self._taken[lease.run_id, lease.step] = following
        pool.go_on(Delivery(MODEL.queue, lease.run_id, lease.conversation_id, lease.step, number=1))

    def begin(self, run_id: str, step: str) -> ActiveStep | None:
        """The step that begins now, if this process has claimed it already."""
        active = self._taken.pop((run_id, step), None)
        if active is not None:
            self._upcoming.remove(active)
            active.began_at = time.monotonic()
        return active

    @property
    def _room(self) -> int:
        """Steps that this process could claim now."""
        leased = len(self._active) - self._claiming - len(self._upcoming)
        return max(0, self._capacity - leased)

    def _may_go_on(self, active: ActiveStep, verdict: Verdict) -> bool:
        if self.pool is None or not isinstance(verdict, Continue) or verdict.calls or call_of(active.step) is not None:
            return False
        soon = time.monotonic() - active.in_place_since < self._longest
        return active.in_place < self._most and soon and self.pool.can_go_on()
