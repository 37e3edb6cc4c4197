"""Rolling deployments under load: every worker and API is replaced by a new one, again and again, and nobody notices.

The new process is ready before the old one gets its SIGTERM, and no request is sent to an API that was told to stop: as
a balancer does it. What is under way there then, a long poll and a stream, is answered or ends in good order.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

import httpx
import pytest

from features.stack.child import ChildCommand
from features.stack.ports import free_port
from tests.chaos.report import record
from tests.chaos.seeds import scaled
from tests.process.cluster import Cluster, stream
from tests.process.one_more import another

pytestmark = pytest.mark.process

LINES = ("worker", "tools", "api")
UNDER_WAY = 15
"""Runs at once."""
GRACE = 10
"""Seconds; no step takes as long, even on a busy machine."""
PATIENCE = 60.0


class Deployment:
    """One worker of each kind and one API, and the load on them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._number = 0
        self._now: list[ChildCommand] = []
        self._all: list[ChildCommand] = []
        self._going: set[str] = set()
        self.clients: list[httpx.Client] = []
        self.seconds: list[float] = []
        """How long the old processes took to leave."""

    def __enter__(self) -> Self:
        self.roll()
        for line in ("worker", "tools"):
            self._cluster.kill(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._all:
            child.kill(signal.SIGKILL)
        for client in self.clients:
            client.close()

    @property
    def http(self) -> httpx.Client:
        """To the API of today."""
        return self.clients[-1]

    def roll(self) -> None:
        """Replace everything once."""
        self._number += 1
        port, before = free_port(), self._now
        environment = {"PALAVER_API_PORT": str(port), "PALAVER_DRAIN_GRACE": str(GRACE)}
        self._now = [another(self._cluster, line, f"roll-{self._number}", **environment) for line in LINES]
        self._all += self._now
        for child in self._now:
            child.start()
        for child in self._now:
            self._work_until(lambda child=child: child.ready or not child.running)  # type: ignore[misc]
            child.wait_until_ready(time.monotonic() + 1)
        self.clients.append(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0, trust_env=False))
        began = time.monotonic()
        for child in before:
            child.terminate()
        self._work_until(lambda: not any(child.running for child in before))
        self.seconds.append(time.monotonic() - began)
        assert [child.exit_code for child in before if child.name.partition("-")[0] != "api"] == [0] * len(before[:-1])

    def _work_until(self, over: Callable[[], bool]) -> None:
        """Keep so many runs under way. No request may fail."""
        deadline = time.monotonic() + PATIENCE
        while not over():
            assert time.monotonic() < deadline, "that takes too long"
            if self._number > 1:
                self.work()

    def work(self) -> None:
        """Look how the runs are, and submit more."""
        for run_id in tuple(self._going):
            if self.get(f"/v1/runs/{run_id}")["status"] == "completed":
                self._going.discard(run_id)
        while len(self._going) < UNDER_WAY:
            body = self._cluster.body("tool-3+rate-100", tools=["calculator", "record"])
            answer = self.http.post("/v1/runs", json=body)
            assert answer.status_code == 202, answer.text
            self._going.add(answer.json()["id"])
            self._cluster.submitted.append(answer.json()["id"])

    def get(self, path: str) -> Any:
        """What the API of today answers."""
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


class Watcher:
    """Follows one run by a stream and by long polls, from one API to the next."""

    def __init__(self, deployment: Deployment, run_id: str) -> None:
        self._deployment = deployment
        self._run_id = run_id
        self._over = threading.Event()
        self.seen: list[int] = []
        self.polled = 0
        self.failures: list[Exception] = []
        self.streams = 0
        self._threads = [threading.Thread(target=self._guarded, args=(act,)) for act in (self._stream, self._poll)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(40)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            while not self._over.is_set():
                act()
        except Exception as error:
            self.failures.append(error)

    def _stream(self) -> None:
        self.streams += 1
        after = self.seen[-1] if self.seen else 0
        for _, event in stream(self._deployment.http, f"/v1/runs/{self._run_id}/events?after={after}"):
            self.seen.append(event["id"])
            if event["event"] == "run.finished":
                self._over.set()

    def _poll(self) -> None:
        self._deployment.get(f"/v1/runs/{self._run_id}?wait=20")
        self.polled += 1


@pytest.mark.chaos
def test_rolling_deployments(cluster: Cluster) -> None:
    roll(cluster, times=2)


@pytest.mark.chaos
def test_many_rolling_deployments(cluster: Cluster) -> None:
    roll(cluster, times=scaled(10))


def roll(cluster: Cluster, *, times: int) -> None:
    """Replace everything so many times: no run is lost, no model call is made twice, no request fails."""
    with Deployment(cluster) as deployment:
        watched = cluster.submit("echo", start_after=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
        with Watcher(deployment, watched) as watcher:
            for _ in range(times):
                deployment.roll()
            cluster.cancel(watched)
        assert not watcher.failures, watcher.failures
        assert watcher.polled >= times
        assert watcher.streams > times
        ends = Counter(cluster.ended(run_id, within=PATIENCE).status.value for run_id in cluster.submitted)
        calls = Counter(call.run for call in cluster.model_calls())
        extra = {run_id: calls[run_id] - 4 for run_id in cluster.submitted if run_id != watched and calls[run_id] != 4}
        counts = {"rollovers": times, "processes replaced": times * len(LINES), "extra calls": len(extra)}
        print(counts, ends, [round(each, 1) for each in deployment.seconds])
        record("rollovers", seed=0, counts=counts, ends=ends, seconds=deployment.seconds[1:], violations=len(extra))
        assert ends == {"completed": len(cluster.submitted) - 1, "cancelled": 1}
        assert not extra
        assert watcher.seen == list(range(1, cluster.run(watched).last_event_id + 1))
