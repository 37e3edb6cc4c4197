"""The connection to the broker by kombu, and a publisher on it. Beside ``workers``, the one module that uses kombu.

A delivery is a hint that carries ids (invariant 1), so a publish is tried once and fast: the sweeper delivers again
what is lost. The messages are Celery's protocol 2 (palaver/steps/wire.py), so that the API needs no Celery. The
things that publishers and workers must agree on are here too: queues, and the settings of the connection.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from palaver.config.brokers import has_priorities, is_redis, kombu_url, tls_options
from palaver.config.sentinels import Sentinels, by_sentinels, sentinels_of
from palaver.vocabulary import step_kinds
from palaver.vocabulary.step_kinds import RECOVERED

try:
    from kombu.connection import Connection
    from kombu.entity import Exchange, Queue
    from kombu.messaging import Producer
    from kombu.transport import redis

    from palaver.steps.leases import Delivery
    from palaver.steps.wire import CONTENT_ENCODING, CONTENT_TYPE, ORIGIN, body_of, headers_of
except ImportError as error:
    raise ImportError("publishing needs the server extra: pip install palaver[server]") from error

_log = logging.getLogger("palaver.delivery.deliveries")

QUEUE_NAMES: Final = (*step_kinds.QUEUES, *(name + RECOVERED for name in step_kinds.QUEUES))
_CONNECT_TIMEOUT: Final = 2.0
_ANSWER_TIMEOUT: Final = 5.0
_KEEPALIVE: Final = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
}
"""Seconds and probes. kombu turns redis-py's own off, and Flower's reader of events has no other check."""
_KIND: Final = {"x-queue-type": "classic", "x-max-priority": 1}
_AT_ONCE: Final = {"max_retries": 0, "interval_start": 0}
"""kombu connects a second time after 2 s, unless this says otherwise."""


def queue(name: str) -> Queue:
    """The declaration of a queue that publishers and workers share: durable, on the default exchange.

    Its arguments are for RabbitMQ: the kind that every version has, with one priority above the usual.
    """
    exchange = Exchange("")
    return Queue(name, exchange, routing_key=name, durable=True, queue_arguments=_KIND)


QUEUES: Final[Mapping[str, Queue]] = {name: queue(name) for name in QUEUE_NAMES}
"""The queues of the kinds of steps, by name; those that tools name are made as they are needed."""


def transport_options(url: str) -> dict[str, Any]:
    """kombu's options for the broker at ``url``, for publishers and workers alike."""
    if not is_redis(url):
        return {}
    return {
        **(_followed(sentinels_of(url)) if by_sentinels(url) else {}),
        # Without them a publish hangs for as long as Redis does.
        "socket_timeout": _ANSWER_TIMEOUT,
        "socket_connect_timeout": _CONNECT_TIMEOUT,
        "socket_keepalive": True,
        "socket_keepalive_options": _KEEPALIVE,
        # A worker's connection that is dead without a word is missed after a second and one to two of these.
        "health_check_interval": 3,
        # The store knows what is unfinished: no record of unacknowledged messages, no visibility timeout.
        "ack_emulation": False,
        # One list a queue, read in the order in which the queues are consumed.
        "priority_steps": [0],
        "queue_order_strategy": "priority",
        # A ceiling for each channel; kombu's 10 refuses bursts.
        "max_connections": 100,
    }


class _Shown(str):
    """The Sentinels of a broker, where a client that asks a worker for its options reads their addresses and no
    more."""

    sentinels: Sentinels


def _followed(sentinels: Sentinels) -> dict[str, Any]:
    shown = _Shown(",".join(map(str, sentinels.places)))
    shown.sentinels = sentinels
    return {"sentinels": shown}


class Channel(redis.Channel):
    """A channel that never puts delivered messages back, and has one client for its commands.

    A lost connection would otherwise queue steps that still run a second time, or, without a record of them,
    dump their payloads to a file. A client for each command, as kombu makes them, is half the cost of a publish.
    It leans on `do_restore`, `conn_or_acquire` and `_connparams` of kombu 5.7, held by tests/process/test_pool.py and
    test_sentinel.py there.
    """

    do_restore = False
    _commands: Any = None

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """The ``client`` of the argument or this channel's own, safe to share: each command takes a pooled
        connection."""
        if client is None:
            # A fork and a close drop the pool, and with it the client.
            if self._commands is None or self._commands.connection_pool is not self.pool:
                self._commands = self._create_client()  # type: ignore[no-untyped-call]
            client = self._commands
        yield client

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        """Parameters of its connections, which follow the primary where Sentinels know it."""
        # Not above, as with TLS.
        from palaver.store.redis.pool import driver

        return self._places(asynchronous) | {"driver_info": driver()}

    def _places(self, asynchronous: bool) -> dict[str, Any]:
        shown = self.connection.client.transport_options.get("sentinels")
        if shown is None:
            if self.connection.client.ssl:
                # Not above, as with Sentinels.
                from palaver.store.redis.tls import ThreadTlsConnection

                self.connection_class_ssl = cast("Any", ThreadTlsConnection)
            parameters: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[no-untyped-call]
            return parameters
        # Not above: a broker that is one server does without.
        from palaver.store.redis.sentinel.blocking import followed

        options = followed(shown.sentinels)
        # kombu makes a class of its own of this one.
        self.connection_class = self.connection_class_ssl = options.pop("connection_class")
        return super()._connparams(asynchronous) | options  # type: ignore[no-untyped-call, no-any-return]


class Transport(redis.Transport):
    """kombu's Redis transport with the channel above."""

    Channel = Channel


class Publisher:
    """Sends deliveries to the broker at ``url``, and waits for that.

    For event loops there is `palaver.delivery.publishing`.
    Connects when first used; safe to use from any thread.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._options = transport_options(url)
        self._has_priorities = has_priorities(url)
        # A transport that is named is not asked what its scheme means: TLS has to be named as well.
        self._transport = Transport if self._options else None
        self._tls = tls_options(url)
        self._local = threading.local()

    def publish(self, deliveries: Iterable[Delivery]) -> None:
        """Send ``deliveries``. Waits for the broker, 5 s at most; RabbitMQ is not asked to confirm.

        Raises what kombu raises when the broker does not take them; it may have some.
        """
        try:
            producer = self._producer()
            for delivery in deliveries:
                name, priority = self._route(delivery.queue)
                self._declare(producer, name)
                _send(producer, delivery, name, priority)
        except Exception:
            self._drop(broken=True)
            raise

    def depth(self, queue: str) -> int:
        """Messages that wait in ``queue``, recovered ones too; 0 when there is no such queue. Waits for the broker.

        Raises what kombu raises when the broker does not answer.
        """
        try:
            channel = self._producer().channel
            names = dict.fromkeys(self._route(name)[0] for name in (queue, queue + RECOVERED))
            # Declaring tells it too; a passive question would cost the channel when there is no queue yet.
            replies = [
                channel.queue_declare(queue=name, durable=True, auto_delete=False, arguments=_KIND) for name in names
            ]
        except Exception:
            self._drop(broken=True)
            raise
        return sum(int(reply.message_count) for reply in replies)

    def close(self) -> None:
        """Disconnect this thread."""
        self._drop()

    def _producer(self) -> Any:
        """This thread's producer, on a connection of its own; a new one after a fork, or when RabbitMQ hung up."""
        local = self._local
        if getattr(local, "process", None) != os.getpid() or _has_input(local.socket):
            self._drop(broken=True)
            local.connection = Connection(
                kombu_url(self._url),
                transport=self._transport,
                ssl=self._tls or False,
                transport_options=self._options | _AT_ONCE,
                connect_timeout=_CONNECT_TIMEOUT,
            )
            channel = local.connection.default_channel
            local.socket = channel.connection.sock if self._has_priorities else None
            if local.socket is not None:
                # py-amqp waits for an answer for as long as RabbitMQ takes.
                local.socket.settimeout(_ANSWER_TIMEOUT)
            local.producer = Producer(channel, auto_declare=False)
            local.declared = set()
            local.process = os.getpid()
        return local.producer

    def _route(self, name: str) -> tuple[str, int]:
        """The queue and the priority that stand for the queue of a delivery."""
        if self._has_priorities and name.endswith(RECOVERED):
            return name.removesuffix(RECOVERED), 1
        return name, 0

    def _declare(self, producer: Any, name: str) -> None:
        """Declare the queue once a connection: RabbitMQ silently drops a message to a queue that does not exist."""
        if name not in self._local.declared:
            declaration: Any = queue(name)
            declaration.declare(channel=producer.channel)
            self._local.declared.add(name)

    def _drop(self, *, broken: bool = False) -> None:
        """Forget this thread's connection: the next publish makes a new one. A broken one is left without a word."""
        connection = getattr(self._local, "connection", None)
        self._local.process = self._local.connection = self._local.producer = None
        if connection is not None:
            try:
                if broken and self._has_priorities:
                    connection.collect()
                else:
                    connection.release()
            except Exception as error:
                _log.debug("the broker's connection did not close: %s", type(error).__name__)


def _has_input(connected: socket.socket | None) -> bool:
    """Tell whether RabbitMQ sent something unasked: mostly its farewell, and what is sent to it after that is lost in
    silence."""
    if connected is None:
        return False
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))


def _send(producer: Any, delivery: Delivery, queue: str, priority: int) -> None:
    producer.publish(
        body_of(delivery),
        routing_key=queue,
        priority=priority,
        exchange="",
        content_type=CONTENT_TYPE,
        content_encoding=CONTENT_ENCODING,
        delivery_mode=2,
        headers=headers_of(delivery, ORIGIN),
        correlation_id=delivery.task_id,
    )
