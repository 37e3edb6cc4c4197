"""Clients that submit runs all the time, each until it is promised; and what must have become of the promises."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx

from palaver.schemas.models import Run
from tests.checkers import violations
from tests.process.checks import gather
from tests.process.cluster import Cluster
from tests.waiting import eventually

INVARIANTS = ("I1", "I2", "I3", "I4", "I8", "I9")
"""Those that hold although a model may have been asked more often than the log knows, and an end or some deltas may
be forgotten: what a model step did is not waited for."""
PATIENCE = 30.0
"""Seconds after which a promise should have been made."""


class Clients:
    """Submit runs all the time, each until it is promised; `promised` are their ids."""

    def __init__(self, cluster: Cluster, number: int = 3) -> None:
        self.promised: list[str] = []
        self.retried = 0
        self._cluster = cluster
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._submit, args=(i,)) for i in range(number)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)

    def some_more(self, number: int = 5) -> None:
        """Wait until so many more are promised."""
        some = len(self.promised)
        eventually(lambda: len(self.promised) >= some + number, within=60)

    def _submit(self, number: int) -> None:
        body = self._cluster.body("tool-3+use-each+rate-100", tools=["record", "record_idempotent", "calculator"])
        with httpx.Client(base_url=self._cluster.stack.url, timeout=10, trust_env=False) as http:
            for key in keys(number):
                begun = time.monotonic()
                while (answer := http.post("/v1/runs", json=body, headers={"Idempotency-Key": key})).status_code != 202:
                    assert answer.status_code == 503, answer.text
                    assert time.monotonic() - begun < PATIENCE, answer.text
                    self.retried += 1
                self.promised.append(answer.json()["id"])
                if self._over.wait(0.1):
                    return


def keys(number: int) -> Iterator[str]:
    """Idempotency keys that nobody else uses."""
    count = 0
    while True:
        yield f"{number}-{(count := count + 1)}"


def check_all(cluster: Cluster, promised: list[str]) -> None:
    """Every promised run is there and ended well, its log is whole, and no tool was begun twice."""
    assert len(set(promised)) == len(promised)

    def open_runs() -> list[Run]:
        return [run for run in map(cluster.run, promised) if not run.status.terminal]

    eventually(lambda: not open_runs(), within=60, every=0.5, why="runs did not end")
    assert all(cluster.run(run_id).status == "completed" for run_id in promised)
    found = [each for each in violations(gather(cluster, promised), INVARIANTS) if each.checker != "text_adds_up"]
    assert not found, "\n".join(map(str, found))
