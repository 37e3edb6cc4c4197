"""Celery's own events, as Flower gets them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery

from tests.waiting import eventually


@contextmanager
def celery_events(broker_url: str, *, workers: int) -> Iterator[list[dict[str, Any]]]:
    """A list that fills with the events of all workers; as Flower does, this asks them to send some."""
    app = Celery("watcher", broker=broker_url, set_as_current=False)
    seen: list[dict[str, Any]] = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": seen.append})
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False}, daemon=True)
        thread.start()
        try:
            eventually(lambda: _heard(app, seen))
            # A connection of its own: those that Celery pools may be from before a restart of the server.
            with app.connection_for_write() as asking:
                answers = app.control.broadcast(
                    "enable_events", reply=True, limit=workers, timeout=5, connection=asking
                )
                assert len(answers) == workers, answers
            yield seen
        finally:
            receiver.should_stop = True
            thread.join()
            app.close()


def _heard(app: Celery, seen: list[dict[str, Any]]) -> bool:
    """Whether an event of our own arrives: the others do from now on."""
    with app.connection_for_write() as connection, app.events.Dispatcher(connection) as dispatcher:
        dispatcher.send("test-heard")
    return any(event["type"] == "test-heard" for event in seen)
