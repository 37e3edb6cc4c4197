"""Workers of an application that is somebody else's, such as that in shop.py, on a broker of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from celery import Celery

from features.stack.redis_server import RedisServer
from tests.pages import ROOT
from tests.waiting import eventually


@dataclass
class Shop:
    """The other application: a broker, a worker that reports, one that does not, and what its tasks did."""

    folder: Path
    redis: RedisServer
    workers: dict[str, subprocess.Popen[bytes]]
    application: str = "tests.process.shop"
    rabbitmq: str = ""
    """The address of the broker, if that is no Redis; its workers report to ``redis`` then."""

    @property
    def environment(self) -> dict[str, str]:
        reports = {"SHOP_REPORTS": self.redis.url} if self.rabbitmq else {}
        return {"SHOP_BROKER": self.broker, "SHOP_LEDGER": str(self.folder / "ledger"), **reports}

    @property
    def broker(self) -> str:
        """Its address."""
        return self.rabbitmq or self.redis.url

    def start(self, queue: str, *options: str, **more: str) -> None:
        """A worker for this queue, which answers when this returns."""
        usual = ["-Q", queue, "-n", f"{queue}@shop", "-c", "2", "-l", "WARNING", "--without-gossip", "--without-mingle"]
        with (self.folder / f"{queue}.log").open("ab") as log:
            self.workers[queue] = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", self.application, "worker", *usual, *options],
                env={**os.environ, **self.environment, **more},
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(lambda: self.app.control.ping([f"{queue}@shop"], timeout=0.5), why="no worker")

    def kill(self, queue: str) -> None:
        """SIGKILL to a worker with its children."""
        os.killpg(self.workers[queue].pid, signal.SIGKILL)
        self.workers[queue].wait()

    def close(self) -> None:
        """SIGKILL to all of them."""
        for queue in self.workers:
            self.kill(queue)

    @property
    def app(self) -> Celery:
        return Celery("looking", broker=self.broker, set_as_current=False)

    def begun(self, order: str) -> list[str]:
        """The ids under which the refund of this order began."""
        path = self.folder / "ledger"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [task for event, other, task in lines if (event, other) == ("begin", order)]

    def ended(self, order: str) -> bool:
        return f"end {order} " in (self.folder / "ledger").read_text()
