"""Events of tasks for Flower, sent together: Celery's own way is a message of its own for nearly each of them."""

from __future__ import annotations

from typing import Any, Final

import orjson
from celery.bootsteps import StartStopStep
from celery.worker.consumer.events import Events
from kombu import serialization
from kombu.utils import json

_GATHER: Final = 0.2
"""Seconds that an event waits for others. People look at them, and no program waits for one."""
_TOGETHER: Final = 100
"""Events in a message at most: with a traceback in each of them it is still let in (`control_message` of
palaver/vocabulary/limits.py)."""
_SERIALIZER: Final = "palaver-events"
_AS_KOMBU: Final = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


def _dumps(value: Any) -> bytes | str:
    """JSON, as kombu writes it, for a fraction of the cost where there is nothing but plain values."""
    try:
        return orjson.dumps(value, option=_AS_KOMBU)
    except TypeError:
        return str(json.dumps(value))


serialization.register(_SERIALIZER, _dumps, None, "application/json", "utf-8")
# To kombu, messages of that type remain those of its own serializer, which is the one of all other messages.
serialization.register("json", None, None, "application/json", "utf-8")


class EventBatcher(StartStopStep):  # type: ignore[misc]  # Celery is untyped
    """Part of a worker's consumer: events leave in the order in which they came, in one message for all of a moment.

    None is lost when the worker drains or connects again, where Celery drops what its dispatcher has not sent. It leans
    on `on_send_buffered`, `buffer_limit` and `_group_buffer` of Celery 5.7's dispatcher, held by
    tests/unit/test_event_batcher.py and tests/process/test_flower.py.
    """

    requires = (Events,)

    def __init__(self, consumer: Any, **_: Any) -> None:
        super().__init__(consumer)
        self._dispatcher: Any = None
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """There is a connection, and a dispatcher of its own: it sends what the one before had not."""
        before, self._dispatcher = self._dispatcher, consumer.event_dispatcher
        if self._dispatcher is None:
            return
        # The timer of a consumer that connects again is empty.
        self._timer = None

        def send() -> None:
            self._timer = None
            self._dispatcher.flush()

        def send_soon() -> None:
            # So are others' entries in it, if a consumer fails before it is connected.
            if self._timer is None or self._timer.canceled:
                self._timer = consumer.timer.call_after(_GATHER, send)

        self._dispatcher.serializer = _SERIALIZER
        self._dispatcher.on_send_buffered, self._dispatcher.buffer_limit = send_soon, _TOGETHER
        for group, events in before._group_buffer.items() if before else ():
            self._dispatcher._group_buffer[group] += events
            send_soon()

    def shutdown(self, consumer: Any) -> None:
        """The pool has drained, so no more will come."""
        if consumer.event_dispatcher is not None:
            consumer.event_dispatcher.flush()
