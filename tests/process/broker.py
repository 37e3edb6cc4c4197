"""The broker under test, Redis or RabbitMQ: what is in it, and what may happen to what is in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kombu.connection import Connection

from palaver.config.brokers import kombu_url
from palaver.config.sentinels import by_sentinels
from palaver.delivery.deliveries import QUEUES, Publisher, Transport, transport_options
from palaver.steps.leases import Delivery

ON_RABBITMQ: Final = os.environ.get("PALAVER_TEST_BROKER", "redis") == "rabbitmq"
"""Whether every cluster gets a RabbitMQ as its broker: PALAVER_TEST_BROKER=rabbitmq."""


class Broker:
    """The broker at `url`, past Palaver's workers."""

    def __init__(self, url: str) -> None:
        self.url = url

    def depth(self, queue: str) -> int:
        """Messages that wait in `queue`, recovered ones included."""
        return self.depths(queue)[queue]

    def depths(self, *queues: str) -> dict[str, int]:
        """Those of each of these queues, or of both of Palaver's."""
        publisher = Publisher(self.url)
        try:
            return {queue: publisher.depth(queue) for queue in queues or ("model", "tools")}
        finally:
            publisher.close()

    def empty(self) -> bool:
        """Whether no message waits."""
        return not any(self.depths().values())

    def lose(self, times: int = 1) -> None:
        """Everything that waits is gone, so many times one after the other."""
        with self._channel() as channel:
            for _ in range(times):
                for name in QUEUES:
                    channel.queue_purge(queue=name)

    def double(self, queue: str, copies: int) -> None:
        """Each message that waits in `queue` waits there so many times more."""
        with self._channel() as channel:
            for message in _taken(channel, queue):
                for _ in range(copies + 1):
                    channel.basic_publish(_again(channel, message), exchange="", routing_key=queue)

    def take(self, queue: str) -> list[dict[str, Any]]:
        """The headers of each message that waits in `queue`, in the order in which a worker would get them."""
        with self._channel() as channel:
            return [channel.message_to_python(message).headers for message in _taken(channel, queue)]

    def deliver(self, delivery: Delivery, times: int = 1) -> None:
        """Send a delivery, as late and as often as it pleases."""
        publisher = Publisher(self.url)
        try:
            publisher.publish([delivery] * times)
        finally:
            publisher.close()

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        # Sentinels are for the product's own transport; kombu's has no name for them.
        transport = Transport if by_sentinels(self.url) else None
        options = transport_options(self.url) if transport else None
        with Connection(kombu_url(self.url), transport=transport, transport_options=options) as connection:
            channel = connection.channel()
            for queue in QUEUES.values():
                queue(channel).declare()
            yield channel


def _taken(channel: Any, queue: str) -> list[Any]:
    found = []
    while message := channel.basic_get(queue, no_ack=True):
        found.append(message)
    return found


def _again(channel: Any, message: Any) -> Any:
    """The message as it was published."""
    kept = channel.message_to_python(message)
    named = {"correlation_id": kept.properties.get("correlation_id"), "delivery_mode": 2}
    told = {"content_type": kept.content_type, "content_encoding": kept.content_encoding, "headers": kept.headers}
    return channel.prepare_message(kept.body, priority=0, properties=named, **told)
