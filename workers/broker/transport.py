"""The worker's connection to its broker.

Importing this module makes the transport of workers/broker/reading.py kombu's own for redis:// and rediss:// URLs in
this process, and for those that Sentinels know; other brokers keep theirs. `sep` is left alone: a list's name is cut
there when a message arrives, so that `.` or `:` would read `model.recovered` as `model`; the default, two control
characters, is safe.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from celery.app.amqp import AMQP, Queues
from celery.bootsteps import StartStopStep
from celery.worker.state import reserved_requests
from kombu.connection import Connection
from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.functional import maybe_list

from palaver.config.brokers import BY_SENTINELS, has_priorities, kombu_url, tls_options
from palaver.delivery.deliveries import queue, transport_options
from palaver.vocabulary.step_kinds import RECOVERED, broker_queue, is_own_queue, queue_in_broker

from .reading import ConsumerTransport


class QuickReconnect(Connection):
    """A broker that is away is asked for every 3 s at least. kombu waits for up to 30: long after it is back."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """Connect, however long it takes."""
        keen = {"interval_start": 1, "interval_step": 1, "interval_max": 3}
        return super().ensure_connection(*args, **keen | options)  # type: ignore[no-untyped-call]


class TaskQueues(Queues):  # type: ignore[misc]  # Celery is untyped
    """The queues of an app: those that tools name are none that it could list."""

    def select(self, include: Any) -> None:
        """Consume from these queues, for which workers are started with `-Q`."""
        super().select([broker_queue(name) if is_own_queue(name) else name for name in maybe_list(include) or ()])

    def __missing__(self, name: str) -> Any:
        if queue_in_broker(name) is None:
            return super().__missing__(name)
        return self.add(queue(name))


class Amqp(AMQP):  # type: ignore[misc]  # Celery is untyped
    """The connections of an app's workers."""

    Connection = QuickReconnect
    queues_cls = TaskQueues


def broker_settings(url: str) -> dict[str, Any]:
    """Celery settings for the broker at `url`.

    The options for TLS are in the URL too, but Flower reads them here only.
    """
    settings: dict[str, Any] = {
        "broker_url": kombu_url(url),
        "broker_transport_options": transport_options(url),
        # RabbitMQ complains by closing a channel: connect again, rather than exit.
        "broker_channel_error_retry": True,
        # Seconds; a connection to RabbitMQ that is half open is noticed after two of them.
        "broker_heartbeat": 10,
    }
    if tls := tls_options(url):
        settings["broker_use_ssl"] = tls
    return settings


def consume_recovered_first(instance: Any, **_: Any) -> None:
    """Receiver for Celery's `celeryd_after_setup`: each queue Q it reads comes after Q.recovered.

    Redis reads those of a kind of steps in this order, strictly; RabbitMQ has priorities within Q instead.
    """
    queues = instance.app.amqp.queues
    names = [name for name in queues.consume_from if not name.endswith(RECOVERED)]
    if not has_priorities(instance.app.conf.broker_url):
        names = [name for queue in names for name in (queue + RECOVERED, queue)]
    queues.select(names)


class AckTimeout(StartStopStep):  # type: ignore[misc]  # Celery is untyped
    """Part of a consumer of RabbitMQ's: has it let go of deliveries in time, though their steps go on.

    RabbitMQ closes the channel of a consumer that keeps a delivery for longer than its `consumer_timeout`, 30 minutes
    unless it is set, and hands everything out again. The step has been claimed by then, so the hint is not needed any
    more. In its place RabbitMQ may send one that the worker has no room for: the sweeper sends that to others as well.

    What came over a connection that is lost is out again, and can no longer be acknowledged.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)
    interval = 300.0
    """Seconds; a delivery stays unacknowledged for twice as long at most."""

    def __init__(self, consumer: Any, **_: Any) -> None:
        self._reserved: WeakSet[Any] = WeakSet()
        self._timer: Any = None

    def include_if(self, consumer: Any) -> bool:
        """Redis keeps no account of deliveries."""
        return has_priorities(consumer.app.conf.broker_url)

    def start(self, consumer: Any) -> None:
        """Look again and again, while this connection lasts."""
        self._timer = consumer.timer.call_repeatedly(self.interval, self._look)

    def stop(self, consumer: Any) -> None:
        """Stop looking; with the connection lost, forget what it brought."""
        if self._timer:
            self._timer.cancel()
        if consumer.connection is None:
            for request in tuple(reserved_requests):
                request.acknowledged = True

    def _look(self) -> None:
        for request in self._reserved & reserved_requests:
            request.acknowledge()
        self._reserved = WeakSet(reserved_requests)


TRANSPORT_ALIASES.update(
    dict.fromkeys(("redis", "rediss", BY_SENTINELS), f"{ConsumerTransport.__module__}:{ConsumerTransport.__name__}")
)
