"""Going on in place: the worker that settles a step claims the next steps of its run with that, and begins them at
once.

Behind a model step these are the tool steps of its turn, as far as this worker does such (`palaver worker --tools`), or
the next model step; behind the last tool step of a turn it is the next model step. Nothing is published, waits in a
queue or has to be claimed. Each of these steps is a Celery task of its own (workers/broker/jobs.py), under its own
lease. The store decides, in the script that settles: only a step that is ready goes on, and only while no step of a
queue of this worker waits for one. Here are the bounds, and what a cancel finds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import NamedTuple, Protocol

from palaver.config.settings import Settings
from palaver.steps.leases import Delivery, Lease, OfferedPlace
from palaver.steps.verdicts import Continue, Verdict

from .active_step import ActiveStep
from .conversations import CachedConversation


class PlacePool(Protocol):
    """The pool that the tasks of this process run on."""

    def can_go_on(self) -> bool:
        """Tell whether a task may follow the current one in its place."""

    def go_on(self, delivery: Delivery) -> None:
        """Begin the task of ``delivery`` in the place of the current one, once that has ended."""

    def reserving(self, places: int) -> AbstractContextManager[None]:
        """A context within which so many places beside that one are for tasks that may go on."""


class PlaceOffer(NamedTuple):
    """The offer of a step that is settled to the next steps of its run."""

    place: OfferedPlace | None
    """None if the run must not go on here."""
    following: Mapping[str, ActiveStep]
    """The steps that would begin here, by name."""


class InPlace:
    """The places of this process's steps, and what begins in them."""

    def __init__(
        self, settings: Settings, worker_id: str, capacity: int, active: set[ActiveStep], queues: Sequence[str]
    ) -> None:
        """``queues`` are those that the worker takes from."""
        self.pool: PlacePool | None = None
        """None where each step needs a delivery."""
        self._most = settings.in_place_steps
        self._longest = settings.in_place_seconds
        self._worker_id = worker_id
        self._queues = " ".join(queues)
        self._lease = settings.lease_seconds
        self._capacity = capacity
        self._active = active
        self._upcoming: set[ActiveStep] = set()
        """Those that take no place more: they would begin, or have not begun yet, where a step ends."""
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
        """Offer the place of a step to the next ones of its run, while its ``verdict`` is settled. As from before any
        claim, a cancel of the run finds them from now on."""
        names = () if known is None else self._behind(active, verdict)
        pool = self.pool
        if known is None or pool is None or not names or not self._may_go_on(active, pool):
            yield PlaceOffer(None, {})
            return
        room, steps = self._room, [ActiveStep(active.run_id, name, behind=active) for name in names]
        self._active.update(steps)
        # One begins where this step ends. Those beside it may take all the room: no other offer has it meanwhile.
        self._upcoming.update(steps[:1] + steps[1 + room :])
        nonce = str(next(self._nonces))
        place = OfferedPlace(self._worker_id, nonce, self._lease, known.position, known.position_at, room, self._queues)
        try:
            with pool.reserving(min(len(steps) - 1, room)):
                yield PlaceOffer(place, {step.step: step for step in steps})
        finally:
            taken = [step for step in steps if step.lease is not None]
            self._active.difference_update(set(steps).difference(taken))
            self._upcoming.difference_update(steps)
            self._upcoming.update(taken[:1])

    def go_on(self, offer: PlaceOffer, lease: Lease) -> None:
        """The offer was taken: a step begins, under this lease, when the task that settled ends."""
        following, pool = offer.following[lease.step], self.pool
        assert pool is not None, "a place was offered by a process whose pool can go on"
        following.lease = lease
        self._taken[lease.run_id, lease.step] = following
        title = _title(lease)
        pool.go_on(Delivery(lease.kind.queue, lease.run_id, lease.conversation_id, lease.step, number=1, title=title))

    def begin(self, run_id: str, step: str) -> ActiveStep | None:
        """The step that begins now, if this process has claimed it already."""
        active = self._taken.pop((run_id, step), None)
        if active is not None:
            self._upcoming.discard(active)
            active.began_at = time.monotonic()
        return active

    @property
    def _room(self) -> int:
        """Steps that this process could claim now."""
        leased = len(self._active) - self._claiming - len(self._upcoming)
        return max(0, self._capacity - leased)

    def _behind(self, active: ActiveStep, verdict: Verdict) -> Sequence[str]:
        """The names of the steps that may begin in the place of one with this verdict."""
        if not isinstance(verdict, Continue):
            return ()
        if verdict.calls:
            return [f"{active.step}/{each.call.id}" for each in verdict.calls if each.at_hand]
        return (str(int(active.step.partition("/")[0]) + 1),)

    def _may_go_on(self, active: ActiveStep, pool: PlacePool) -> bool:
        soon = time.monotonic() - active.in_place_since < self._longest
        return active.in_place < self._most and soon and pool.can_go_on()


def _title(lease: Lease) -> str:
    """What a step is, for operators: its tool or model, and the agent."""
    what = lease.agent.model if lease.call is None else lease.call.name
    return f"{what} for {lease.agent.name}" if lease.agent.name else what
