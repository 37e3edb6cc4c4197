"""Celery's consumer, which takes deliveries and nothing else, from any broker.

It leans on `Message._decoded_cache` of kombu 5.7, held by tests/unit/test_wire.py, and on `Channel.no_ack_consumers`,
held by tests/process/test_rabbitmq.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from amqp.exceptions import AccessRefused, NotAllowed
from celery.worker import consumer

from palaver.steps.wire import CONTENT_TYPE, delivery_in, headers_of, payload_of
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import queue_in_broker

from .reading import dropped

log = logging.getLogger("palaver.workers.broker.consumer")


_APART: Final = 1.0
"""Seconds between two tries to connect to a broker that refuses: each is a line of the log."""
_REFUSALS: Final = (AccessRefused, NotAllowed)
"""Errors of RabbitMQ for a wrong login, and for a virtual host that does not exist or is not for this user."""
refused = False
"""True while the broker refuses the login of this process."""


class _Pace:
    """In place of Celery's count of restarts, which takes a second's rest after five of them, and logs a traceback."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def step(self) -> None:
        """Wait until a second after the last step."""
        time.sleep(max(0.0, self._last + _APART - time.monotonic()))
        self._last = time.monotonic()


class Consumer(consumer.Consumer):  # type: ignore[misc]  # Celery is untyped
    """A message that is no delivery is gone, whatever it says; it does not come again."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._restart_state = _Pace()

    def connect(self) -> Any:
        """Connect for taking deliveries."""
        global refused
        connection = super().connect()
        refused = False
        return connection

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """Say why there is no connection, in one line."""
        global refused
        refused = isinstance(exc, _REFUSALS)
        what = "refuses this process" if refused else "cannot be reached"
        reason = " ".join(str(exc).split())
        log.error("the broker %s %s: %s; trying again each second", self.conninfo.as_uri(), what, reason)

    def create_task_handler(self, **options: Any) -> Callable[[Any], object]:
        """Return the function that is called with each message of a task queue."""
        take = super().create_task_handler(**options)

        def take_deliveries(message: Any) -> object:
            body, queue = _bytes_of(message.body), _queue_of(message)
            if body is None or len(body) > limit_of("delivery"):
                return self._drop(message, "delivery", queue)
            delivery = delivery_in(queue, message.headers, body) if message.content_type == CONTENT_TYPE else None
            if delivery is None or queue not in self.app.amqp.queues.consume_from:
                return self._drop(message, "not_deliveries", queue)
            # Links, limits, stamps: whatever else it says is not heard.
            message.headers, message.properties = headers_of(delivery), _known(message.properties)
            # It has been read; Celery would read it again.
            message._decoded_cache = payload_of(delivery)
            return take(message)

        return take_deliveries

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop what kombu cannot read. Celery asks for this of commands of remote control as well."""
        if _is_gone(message):
            dropped("remote_commands", "remote control")
        else:
            self._drop(message, "not_deliveries", _queue_of(message))

    def _drop(self, message: Any, limit: str, queue: str) -> object:
        dropped(limit, queue if queue_in_broker(queue) is not None else "a queue of Celery's")
        return message.reject_log_error(log, self.connection_errors)


def _bytes_of(body: Any) -> bytes | None:
    if isinstance(body, str):
        return body.encode(errors="replace")
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else None


def _is_gone(message: Any) -> bool:
    """Tell whether the broker has forgotten it already. RabbitMQ closes the channel on which that is rejected."""
    return message.delivery_info.get("consumer_tag") in (message.channel.no_ack_consumers or ())


def _queue_of(message: Any) -> str:
    return str(message.delivery_info.get("routing_key", ""))


def _known(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the properties that kombu needs to put a message back; where to reply to is not among them."""
    return {name: value for name, value in properties.items() if name not in ("reply_to", "correlation_id")}
