"""Notices that a worker's consumer has stalled, and lets it connect to its broker again.

A consumer can be connected and get nothing: a connection that died without a word, one that was forgotten when another
one was restored. Celery and kombu know some of these cases, one by one. Here is the question behind all of them: do
messages wait for long although this worker has room? It is asked of the broker on a connection of its own, and only
by a worker that has room and gets nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from time import monotonic
from typing import Any

from celery import bootsteps
from celery.signals import task_received
from celery.worker import state
from celery.worker.consumer.tasks import Tasks

from palaver.config.settings import settings
from palaver.delivery.deliveries import Publisher
from palaver.vocabulary.step_kinds import RECOVERED

log = logging.getLogger("palaver.workers.broker.consumer_watchdog")

_LOOKS = 4
"""Looks in the time after which a consumer counts as stalled."""


class StalledConsumer(ConnectionError):
    """Raised out of a timer of the consumer's event loop, where Celery takes it for what it is, a lost connection, and
    connects again. Steps that the worker works on are not touched."""


class ConsumerWatchdog(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery is untyped
    """A step of Celery's consumer, begun with each connection. All but the question runs in the consumer's thread."""

    requires = (Tasks,)

    def __init__(self, consumer: Any, **_: Any) -> None:
        super().__init__(consumer)
        self._timer: Any = None
        self._patience = settings().stalled_after
        self._publisher = Publisher(settings().deliveries_url)
        self._asking: threading.Thread | None = None
        self._waiting = False
        """The latest answer: whether messages wait."""
        self._since: float | None = None
        """Since when messages were seen to wait while nothing came."""
        task_received.connect(self._reset)

    def start(self, consumer: Any) -> None:
        """The consumer is connected and consumes."""
        self._reset()
        self._timer = consumer.timer.call_repeatedly(self._patience / _LOOKS, self._look, (consumer,))

    def stop(self, consumer: Any) -> None:
        """It is not any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _reset(self, **_: Any) -> None:
        self._waiting, self._since = False, None

    def _look(self, consumer: Any) -> None:
        queues = [name for name in consumer.app.amqp.queues.consume_from if consumer.task_consumer.consuming_from(name)]
        going = queues and consumer.blueprint.state == bootsteps.RUN
        if not going or len(state.reserved_requests) >= consumer.qos.value:
            # It must not consume, or has to stop, or has no room.
            self._reset()
            return
        now = monotonic()
        if not self._waiting:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= self._patience * (1 - 1 / _LOOKS):
            self._reset()
            raise StalledConsumer(f"nothing came for {self._patience:g} s while messages wait")
        if self._asking is None or not self._asking.is_alive():
            # A queue's depth has its recovered steps in it.
            names = {name.removesuffix(RECOVERED) for name in queues}
            self._asking = threading.Thread(target=self._ask, args=(names,), name="hearing", daemon=True)
            self._asking.start()

    def _ask(self, queues: Iterable[str]) -> None:
        try:
            self._waiting = any(self._publisher.depth(name) for name in queues)
        except Exception as error:
            # Then the consumer hears of it as well.
            self._waiting = False
            log.debug("the broker does not say what waits: %s", type(error).__name__)
        finally:
            self._publisher.close()
