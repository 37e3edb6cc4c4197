"""Clients that keep runs under way while things break, and remember what they were promised."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from palaver.schemas.models import Run
from tests.process.cluster import Cluster

TOOLS = ("calculator", "record", "record_idempotent")
MODELS = ("tool-5+use-each+rate-400", "steps-2-1-3+use-each+rate-400", "say-60+rate-60")


class Load:
    """At most `under_way` runs at a time. Each submission has a key, and is made again until it is answered."""

    def __init__(self, cluster: Cluster, chance: random.Random, under_way: int, models: Sequence[str] = MODELS) -> None:
        self._cluster = cluster
        self._chance = chance
        self._under_way = under_way
        self._models = models
        self._asking: tuple[dict[str, Any], str] | None = None
        self._going: set[str] = set()
        self.acknowledged: dict[str, float] = {}
        """When each run was taken on, by the monotonic clock."""
        self.refused = 0
        """Answers that were none, or 503."""

    def go_on(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Use the API for so long, or until something is the case."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not until():
            try:
                self._use()
            except httpx.TransportError:
                self.refused += 1

    def _use(self) -> None:
        http = self._cluster.http
        if len(self._going) >= self._under_way:
            for run_id in tuple(self._going):
                answer = http.get(f"/v1/runs/{run_id}")
                if answer.status_code == 503:
                    # Each refusal takes its time; the others would be refused as well.
                    self.refused += 1
                    return
                ended = answer.status_code == 200 and Run.model_validate_json(answer.content).status.terminal
                # 404: a power cut took it; whoever checks decides whether it might.
                if ended or answer.status_code == 404:
                    self._going.discard(run_id)
            return
        if self._asking is None:
            body = self._cluster.body(self._chance.choice(self._models), tools=TOOLS)
            self._asking = body, uuid.uuid4().hex
        answer = http.post("/v1/runs", json=self._asking[0], headers={"Idempotency-Key": self._asking[1]})
        if answer.status_code != 202:
            assert answer.status_code == 503, answer.text
            self.refused += 1
            return
        run_id = str(answer.json()["id"])
        self._asking = None
        self._going.add(run_id)
        self._cluster.submitted.append(run_id)
        self.acknowledged[run_id] = time.monotonic()
