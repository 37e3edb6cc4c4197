"""Runs under way, as many as wanted, while the processes that work on them die; and clients that do not give in."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import httpx

from palaver.store.redis import keys
from tests.chaos.report import record
from tests.checkers.evidence import Evidence
from tests.checkers.sums import check_sums, counted, since
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.inputs import decision

_TERMINAL: Final = frozenset({"completed", "incomplete", "failed", "cancelled", "expired"})


class Traffic:
    """Submits, cancels, approves and steers through `door`, an API that may die; what was lost there is asked again of
    the cluster's own API, with the same key. `aimed`: it dies only when the store has done what was asked."""

    def __init__(self, cluster: Cluster, chance: random.Random, door: httpx.Client, *, aimed: bool) -> None:
        self._cluster = cluster
        self._chance = chance
        self._door = door
        self._aimed = aimed
        self._going: set[str] = set()
        self._cancelled: set[str] = set()
        self.steered: set[str] = set()
        """Runs into which something was said."""
        self._others = self._all_runs()
        self._counted = cluster.ask(counted)

    def top_up(self, count: int, body: Callable[[], dict[str, Any]]) -> None:
        """Submit until so many runs are under way; forget those that have ended."""
        for run_id, status in self._statuses(self._going).items():
            if status in _TERMINAL:
                self._going.discard(run_id)
        for _ in range(count - len(self._going)):
            answer = self._ask("/v1/runs", body())
            assert answer.status_code == 202, answer.text
            self._going.add(answer.json()["id"])
            self._cluster.submitted.append(answer.json()["id"])

    def cancel_one(self) -> None:
        """Ask one run to stop; it must, even if the API died before it could say so."""
        if run_id := self._one(self._going - self._cancelled):
            answer = self._ask(f"/v1/runs/{run_id}/cancel", {})
            assert answer.status_code in (200, 202, 409), answer.text
            if answer.status_code != 409:
                self._cancelled.add(run_id)

    def steer_one(self) -> None:
        """Say something into one run, once."""
        if run_id := self._one(self._going - self.steered):
            self.steered.add(run_id)
            answer = self._ask(f"/v1/runs/{run_id}/input", {"items": [{"type": "message", "content": "and go on"}]})
            assert answer.status_code in (200, 202, 409), answer.text

    def approve_all(self) -> None:
        """Let every call go on that waits for it."""
        for run_id, status in self._statuses(self._going).items():
            if status == "requires_action":
                answer = self._ask(f"/v1/runs/{run_id}/input", {"items": [decision("all")]})
                assert answer.status_code in (200, 202, 409), answer.text

    def conclude(self, name: str, *, seed: int, made: Mapping[str, int]) -> Evidence:
        """Wait for the end of every run, look at all of them, and report what was `made` and what came of it. What was
        looked at is not looked at again."""
        ends: Counter[str] = Counter()
        violations = 1
        try:
            ends += self._ends()
            evidence = check(self._cluster)
            counts = self._cluster.ask(counted)
            check_sums(since(self._counted, counts), evidence.histories)
            self._counted = counts
            violations = 0
        finally:
            print(f"{name}, {violations} violations: {dict(made)}; {dict(ends)}")
            record(name, seed=seed, counts=made, ends=ends, violations=violations)
        self._cluster.submitted.clear()
        self._cluster.mark_logs()
        return evidence

    def _ends(self, within: float = 60.0) -> Counter[str]:
        """How many ended in which way. Each ended as it was asked to, and there is none that nobody knows of."""
        deadline = time.monotonic() + within
        while left := self._going - {run for run, status in self._statuses(self._going).items() if status in _TERMINAL}:
            self.approve_all()
            assert time.monotonic() < deadline, f"{len(left)} runs do not end, such as {self._told(min(left))}"
            time.sleep(0.05)
        self._going.clear()
        ends = self._statuses(self._cluster.submitted)
        for run_id, status in ends.items():
            wanted = "cancelled" if run_id in self._cancelled else "completed"
            assert status == wanted, f"not {wanted}: {self._told(run_id)}"
        strange = self._all_runs() - self._others
        assert not strange - ends.keys(), f"submitted once, made twice: {self._told(min(strange - ends.keys()))}"
        self._others |= strange
        return Counter(ends.values())

    def _told(self, run_id: str) -> str:
        return f"{self._cluster.run(run_id)!r}\n{self._cluster.timeline(run_id)}"

    def _all_runs(self) -> set[str]:
        with self._cluster.redis() as server:
            found: Any = server.zrange(keys.runs("00"), 0, -1)
            return {run.decode() for run in found}

    def _ask(self, path: str, body: dict[str, Any]) -> httpx.Response:
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        try:
            return self._door.post(path, json=body, headers=headers)
        except httpx.ConnectError:
            return self._cluster.http.post(path, json=body, headers=headers)
        except httpx.TransportError:
            again = self._cluster.http.post(path, json=body, headers=headers)
            assert not self._aimed or again.status_code in (200, 202), f"done, and then refused: {again.text}"
            return again

    def _one(self, runs: set[str]) -> str | None:
        return self._chance.choice(sorted(runs)) if runs else None

    def _statuses(self, runs: Iterable[str]) -> dict[str, str]:
        listed = sorted(runs)
        with self._cluster.redis() as server:
            pipeline = server.pipeline(transaction=False)
            for run_id in listed:
                pipeline.hget(keys.run(run_id), "status")
            return {run_id: status.decode() for run_id, status in zip(listed, pipeline.execute(), strict=True)}
