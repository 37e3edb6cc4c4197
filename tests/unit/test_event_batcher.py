"""Events of tasks leave together: on Celery's own dispatcher, and on kombu's broker within the process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.worker.consumer.events import Events
from kombu import serialization
from kombu.asynchronous.timer import Timer

from workers.broker import event_batcher
from workers.broker.event_batcher import EventBatcher


class Worker:
    """As much of a consumer as the two steps see, and who listens to its events."""

    def __init__(self) -> None:
        self.app = Celery("gathering", broker="memory://", set_as_current=False)
        self.heard: list[list[Any]] = []
        self.timer = Timer()
        self.consumer: Any = SimpleNamespace(
            app=self.app,
            hub=object(),
            hostname="here",
            amqheartbeat=None,
            connection_for_write=lambda heartbeat: self.app.connection_for_write(),
            event_dispatcher=None,
            on_send_event_buffered=None,
            timer=self.timer,
        )
        self.steps = Events(self.consumer, task_events=True), EventBatcher(self.consumer)
        self.listening = self.app.connection_for_read()
        self.queue = self.app.events.Receiver(self.listening).queue(self.listening.default_channel)
        self.queue.declare()

    def connect(self) -> None:
        """Begin, or begin again after a loss."""
        for step in self.steps:
            step.start(self.consumer)

    def send(self, *names: str) -> None:
        """Tell of these tasks."""
        for name in names:
            self.consumer.event_dispatcher.send("task-received", uuid=name)

    def elapse(self) -> None:
        """What the timer has is due now."""
        for _, _, entry in sorted(self.timer._queue):
            if not entry.canceled:
                entry()
        self.timer.clear()

    def messages(self) -> list[list[str]]:
        """The tasks in each message that came since the last look."""
        found = []
        while message := self.queue.get(no_ack=True):
            body = message.decode()
            found.append([event["uuid"] for event in body] if isinstance(body, list) else [body["uuid"]])
        return found


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    made.connect()
    yield made
    made.listening.close()


def test_what_comes_together_is_one_message(worker: Worker) -> None:
    worker.send("a", "b", "c")
    assert worker.messages() == []
    worker.elapse()
    assert worker.messages() == [["a", "b", "c"]]
    worker.send("d")
    worker.elapse()
    assert worker.messages() == [["d"]]


def test_no_more_wait_than_fit_in_a_message(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_batcher, "_TOGETHER", 3)
    worker.connect()
    worker.send(*"abcde")
    assert worker.messages() == [["a", "b", "c"]]
    worker.elapse()
    assert worker.messages() == [["d", "e"]]


def test_a_lost_connection_loses_none_and_keeps_their_order(worker: Worker) -> None:
    worker.send("a", "b")
    worker.timer.clear()
    worker.connect()
    worker.send("c")
    worker.elapse()
    worker.timer.clear()
    worker.connect()
    worker.elapse()
    assert worker.messages() == [["a", "b", "c"]]


def test_a_timer_that_was_cancelled_by_others_is_made_again(worker: Worker) -> None:
    worker.send("a")
    for _, _, entry in worker.timer._queue:
        entry.cancel()
    worker.send("b")
    worker.elapse()
    assert worker.messages() == [["a", "b"]]


def test_a_worker_that_drains_sends_what_it_has(worker: Worker) -> None:
    worker.send("a", "b")
    worker.steps[1].shutdown(worker.consumer)
    assert worker.messages() == [["a", "b"]]


def test_an_event_says_what_kombu_alone_would_have_it_say(worker: Worker) -> None:
    said = {
        "text": 'ä "€" \n',
        "runtime": 0.25,
        "none": None,
        "args": ["a", 1],
        "odd": "\ud800",
        "at": datetime.now(UTC),
    }
    for facts in ({**said, "odd": ""}, said):
        worker.consumer.event_dispatcher.send("task-succeeded", uuid="a", **facts)
        worker.elapse()
        message = worker.queue.get(no_ack=True)
        assert message is not None
        (event,) = message.decode()
        assert {name: event[name] for name in facts} == facts


def test_other_messages_are_written_by_kombu() -> None:
    name = uuid4()
    for serializer in ("json", serialization.registry.type_to_name["application/json"]):
        _, _, body = serialization.dumps({"id": name}, serializer=serializer)
        assert serialization.loads(body, "application/json", "utf-8") == {"id": name}
