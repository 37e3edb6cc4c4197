"""Notices that a worker takes nothing though deliveries wait for it and it has places free.

Its threads may all go round while that is so: a pool that does not hear its children, a consumer whose connection is
not the one that it believes to have. `ConsumerWatchdog` connects again first; this is for the time when that has not
helped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from celery import bootsteps
from celery.signals import task_received
from celery.worker import state

from palaver.config.settings import settings
from palaver.delivery.deliveries import Publisher
from palaver.late import dataclass
from palaver.vocabulary.step_kinds import RECOVERED

log = logging.getLogger("palaver.workers.broker.taking")

_ASKED: Final = 0.5
"""The part of that after which the broker is asked what waits."""


@dataclass(frozen=True, slots=True)
class WorkerActivity:
    """A worker's deliveries at one moment."""

    received: int
    begun: int
    """Deliveries, since it started."""
    held: int
    """Deliveries that it has received and that are not over."""
    active: int
    """The number of these that have begun."""
    places: int


class Taking:
    """Looks at a worker again and again. It is stuck once it had room for as long as ``patience``, something waited at
    each look, and nothing was received, begun or ended."""

    def __init__(self, waiting: Callable[[], bool], patience: float, clock: Callable[[], float] = monotonic) -> None:
        """``waiting`` asks the broker whether messages wait; it raises if that cannot be known."""
        self._waiting = waiting
        self._patience = patience
        self._clock = clock
        self._seen: WorkerActivity | None = None
        self._since = clock()
        self._logged = False

    def stuck(self, seen: WorkerActivity | None) -> bool:
        """Tell whether the worker is stuck, after this look; None is a worker that is not to take any."""
        now = self._clock()
        if seen is None or seen != self._seen or seen.active >= seen.places or not self._something_waits(seen, now):
            self._seen, self._since = seen, now
            if self._logged:
                log.warning("deliveries are taken again")
            self._logged = False
            return False
        if now - self._since < self._patience:
            return False
        if not self._logged:
            log.error(
                "nothing was taken for %.0f s though deliveries wait: %d of %d places are free, %d deliveries are held"
                " and have not begun; no progress is told from here on",
                *(now - self._since, seen.places - seen.active, seen.places, seen.held - seen.active),
            )
        self._logged = True
        return True

    def _something_waits(self, seen: WorkerActivity, now: float) -> bool:
        if seen.held > seen.active or now - self._since < self._patience * _ASKED:
            return True
        try:
            return self._waiting()
        except Exception as error:
            # The broker is away: nothing can be taken.
            log.debug("the broker does not say what waits: %s", type(error).__name__)
            return False


class Look:
    """A look at the deliveries of a Celery worker."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._received = 0
        self._publisher = Publisher(settings().deliveries_url)
        task_received.connect(self._count)

    def _count(self, **_: Any) -> None:
        self._received += 1

    def seen(self) -> WorkerActivity | None:
        """Return its deliveries now; None while it stops, or must not consume."""
        consumer, pool = self._consumer, self._consumer.pool
        stopping = state.should_stop is not None or state.should_terminate is not None
        if stopping or consumer.blueprint.state not in (bootsteps.RUN, None) or not self._queues():
            return None
        places = int(getattr(pool, "num_processes", 0) or pool.limit)
        held, active = len(state.reserved_requests), len(state.active_requests)
        return WorkerActivity(self._received, state.all_total_count[0], held, active, places)

    def waiting(self) -> bool:
        """Tell whether messages wait in its queues."""
        try:
            # A queue's depth has its recovered steps in it.
            return any(
                self._publisher.depth(name) for name in {name.removesuffix(RECOVERED) for name in self._queues()}
            )
        finally:
            self._publisher.close()

    def _queues(self) -> list[str]:
        names, consumer = self._consumer.app.amqp.queues.consume_from, self._consumer.task_consumer
        return [name for name in names if consumer is None or consumer.consuming_from(name)]
