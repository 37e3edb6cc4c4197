"""What test_pool.py works with: one server, one producer, and workers of pool_app.py."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import redis
from celery import Celery

from features.stack.child import ChildCommand
from features.stack.redis_server import RedisServer
from palaver.delivery.deliveries import QUEUE_NAMES, queue
from tests.process.rabbitmq import RabbitServer
from tests.waiting import PATIENCE, eventually
from workers.broker.transport import broker_settings


class Bench:
    """One server, one producer, and the record the workers write to."""

    def __init__(self, server: RedisServer | RabbitServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.record = folder / "record"
        self.record.touch()
        self.log = folder / "worker.log"
        self.celery = Celery("producer", set_as_current=False)
        self.celery.conf.update(broker_settings(server.url), task_queues=tuple(map(queue, QUEUE_NAMES)))
        self.events: list[dict[str, Any]] = []

    @cached_property
    def redis(self) -> redis.Redis:
        """A plain connection to the server, if it is a Redis."""
        return redis.Redis.from_url(self.server.url)

    def send(self, task: str, *args: object, queue: str = "model") -> str:
        return str(self.celery.send_task(task, args, queue=queue).id)

    def lines(self) -> list[str]:
        return self.record.read_text().splitlines()

    def saw(self, *lines: str, within: float = PATIENCE) -> None:
        try:
            eventually(lambda: set(lines) <= set(self.lines()), within=within)
        except AssertionError as error:
            raise AssertionError(f"{lines} not in {self.lines()}\n{self.tail()}") from error

    def open(self, gate: str = "gate") -> None:
        (self.folder / gate).touch()

    def kinds(self, task_id: str) -> list[str]:
        return [event["type"] for event in self.events if event.get("uuid") == task_id]

    def event(self, kind: str, task_id: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((e for e in self.events if e["type"] == kind and e.get("uuid") == task_id), None)

        try:
            return eventually(found) or {}
        except AssertionError as error:
            raise AssertionError(f"no {kind} in {self.kinds(task_id)}\n{self.tail()}") from error

    def tail(self) -> str:
        return self.log.read_text()[-3000:] if self.log.exists() else ""

    @contextmanager
    def worker(self, *options: str, ready: bool = True, **env: str) -> Iterator[ChildCommand]:
        celery = [sys.executable, "-m", "celery", "-A", "tests.process.pool_app"]
        quiet = ["--without-gossip", "--without-mingle"]
        variables = {f"POOL_{name.upper()}": value for name, value in env.items()}
        places = {"POOL_BROKER": self.server.url, "POOL_RECORD": str(self.record)}
        worker = ChildCommand(
            "worker",
            [*celery, "worker", "-Q", "model", "-l", "INFO", "-E", *quiet, *options],
            environment={**os.environ, **places, **variables},
            log_path=self.log,
            ready=lambda worker: " ready." in worker.output,
        )
        worker.start()
        try:
            if ready:
                worker.wait_until_ready(time.monotonic() + 30)
            yield worker
        finally:
            worker.kill(signal.SIGKILL)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collect the events that Flower would see."""
        with self.celery.connection_for_read() as connection:
            receiver = self.celery.events.Receiver(connection, handlers={"*": self.events.append})
            thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False}, daemon=True)
            thread.start()
            try:
                eventually(lambda: self.redis.pubsub_numpat())
                yield
            finally:
                receiver.should_stop = True
                thread.join()

    def close(self) -> None:
        self.celery.close()
        if "redis" in self.__dict__:
            self.redis.close()


def exit_code(worker: ChildCommand, within: float = PATIENCE) -> int | None:
    """The exit code of a worker, once it has ended."""
    eventually(lambda: not worker.running, within=within)
    return worker.exit_code
