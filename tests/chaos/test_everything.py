"""All kinds of trouble at random, while runs of all kinds go on. `make chaos`.

What happened is checked as after every test (tests/process/checks.py). At the end everything is healed, and then the
stack must work as on the first day: liveness after the last fault, not only safety under it.
"""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from features.stack.child import ChildCommand
from palaver.delivery.deliveries import QUEUE_NAMES
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.chaos.watchers import Watchers
from tests.checkers import violations
from tests.process.checks import collect
from tests.process.cluster import LEASE, Cluster
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

WORKERS = {"worker": 3, "tools": 2, "api": 1}
MODELS = (
    "tool-5+use-each+rate-400",
    "steps-2-1-3+use-each+rate-400",
    "say-60+rate-40",
    "tool-3+429-1@2+500-1@3",
    "limited/tool-3+429-1@2",
    "say-30+rate-100+cut-1-9",
)
UNDER_WAY = 150
"""Runs at once, at most."""
WATCHED = 5
"""One run of so many is watched from its first event to its last."""


class Trouble:
    """Makes some, one kind at a time."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._kinds: tuple[Callable[[], None], ...] = (
            self.kill,
            self.kill,
            self.kill,
            self.kill_child,
            self.terminate,
            self.freeze,
            self.kill_redis,
            self.pause_redis,
            self.lose_deliveries,
            self.double_deliveries,
        )
        self.made: Counter[str] = Counter()

    def make(self) -> None:
        """One of all kinds."""
        kind = self._chance.choice(self._kinds)
        self.made[kind.__name__] += 1
        kind()

    def _victim(self, *names: str) -> ChildCommand:
        running = [child for name in names for child in self._cluster.children(name) if child.running]
        return self._chance.choice(running)

    def kill(self) -> None:
        self._victim(*WORKERS).kill(signal.SIGKILL)

    def kill_child(self) -> None:
        worker = self._victim("tools")
        with open(f"/proc/{worker.pid}/task/{worker.pid}/children") as listed:
            children = [int(pid) for pid in listed.read().split()]
        os.kill(self._chance.choice(children or [worker.pid]), signal.SIGKILL)

    def terminate(self) -> None:
        self._victim("worker", "tools").terminate()

    def freeze(self) -> None:
        """For longer than a lease; then it goes on and believes that no time has passed."""
        worker = self._victim("worker", "tools")
        worker.kill(signal.SIGSTOP)
        self._pass(self._chance.uniform(0, 2 * LEASE))
        worker.kill(signal.SIGCONT)

    def kill_redis(self) -> None:
        self._cluster.kill("redis")
        self._cluster.start("redis")

    def pause_redis(self) -> None:
        paused = self._cluster.stack.kill("redis", 0, signal.SIGSTOP)
        self._pass(self._chance.uniform(0, 2 * LEASE))
        os.kill(paused, signal.SIGCONT)

    def lose_deliveries(self) -> None:
        self._cluster.broker.lose()

    def double_deliveries(self) -> None:
        for queue in QUEUE_NAMES:
            self._cluster.broker.double(queue, 2)

    def _pass(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        eventually(lambda: time.monotonic() >= until, within=seconds + 1)


def test_everything_at_once(cluster: Cluster, tmp_path: Path) -> None:
    seed, chance = seeded()
    cluster.expect_traceback("Error")
    for name, count in WORKERS.items():
        for _ in range(count - 1):
            cluster.start(name)
    trouble = Trouble(cluster, chance)
    with Watchers(
        cluster.stack.url, tmp_path / "watchers.jsonl", random.Random(seed), breaking=0.01
    ).open() as watchers:
        ends = go_through(cluster, chance, trouble, watchers)
        seen = watchers.seen()
    found = violations(replace(collect(cluster), watched=seen))
    counts = {**trouble.made, "connections of watchers": watchers.connections}
    record("everything at once", seed=seed, counts=counts, ends=ends, violations=len(found))
    assert not found, "\n".join(map(str, found))
    begun = time.monotonic()
    for run_id in [cluster.submit("tool-3", tools=["calculator", "record"]) for _ in range(10)]:
        assert cluster.ended(run_id).status == "completed"
    assert time.monotonic() - begun < 5


def go_through(cluster: Cluster, chance: random.Random, trouble: Trouble, watchers: Watchers) -> Counter[str]:
    """Make trouble, use the stack meanwhile and heal it at last; how the runs ended."""
    lost: list[tuple[dict[str, Any], str]] = []
    for _ in range(scaled(40)):
        trouble.make()
        until = time.monotonic() + chance.uniform(0.1, 1.5)
        while time.monotonic() < until:
            for child in [child for name in WORKERS for child in cluster.children(name)]:
                if not child.running:
                    child.start()
            try_to_use(cluster, chance, lost)
        for run_id in cluster.submitted[::WATCHED]:
            watchers.follow(run_id)
    cluster.heal()
    for body, key in lost:
        cluster.post(body, key)
    ends = Counter(cluster.ended(run_id, within=60).status.value for run_id in cluster.submitted)
    print(f"{dict(trouble.made)}; {dict(ends)}")
    assert ends.keys() <= {"completed", "cancelled", "failed"}
    for run in map(cluster.run, cluster.submitted):
        assert run.status != "failed" or (run.error and run.error["class"] in ("worker_lost", "storage")), run
    return ends


def try_to_use(cluster: Cluster, chance: random.Random, lost: list[tuple[dict[str, Any], str]]) -> None:
    """Submit a run, or cancel one. The API may be away: a submit whose answer was lost is asked again, with its key."""
    try:
        running = cluster.http.get("/v1/runs", params={"status": "running", "limit": UNDER_WAY})
        if running.status_code != 200 or len(running.json()["data"]) >= UNDER_WAY:
            return
        body = cluster.body(chance.choice(MODELS), tools=["calculator", "record", "record_idempotent"])
        lost.append((body, uuid.uuid4().hex))
        while lost:
            cluster.post(*lost[0])
            del lost[0]
        if chance.random() < 0.1:
            cluster.cancel(chance.choice(cluster.submitted))
    except (httpx.TransportError, AssertionError):
        return
