"""Somebody else, whose runs go on while something hostile does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from statistics import quantiles

import httpx

from tests.process.cluster import Cluster


@dataclass
class Neighbour:
    """Somebody else, whose runs go on."""

    cluster: Cluster
    over: threading.Event = field(default_factory=threading.Event)
    seconds: list[float] = field(default_factory=list)
    """That each of its runs took, by the store."""

    def talk(self) -> None:
        """A run after the other, each of two model calls and a tool call between them."""
        body = self.cluster.body("tool-1+use-clock", "hello", tools=["clock"])
        with httpx.Client(base_url=self.cluster.stack.url, timeout=40, trust_env=False) as http:
            while not self.over.is_set():
                run = http.post("/v1/runs", json=body, headers={"Prefer": "wait=30"}).json()
                assert (run.get("status"), run.get("attempt")) == ("completed", 1), run
                created, ended = (datetime.fromisoformat(run["times"][name]) for name in ("created_at", "ended_at"))
                self.seconds.append((ended - created).total_seconds())


@contextmanager
def neighbour_of(cluster: Cluster) -> Iterator[list[float]]:
    """The seconds of each run of somebody else, whose runs go on meanwhile."""
    neighbour = Neighbour(cluster)
    talking = threading.Thread(target=neighbour.talk)
    talking.start()
    try:
        yield neighbour.seconds
    finally:
        neighbour.over.set()
        talking.join()


def spread(seconds: Sequence[float]) -> str:
    """How long the runs took, in words."""
    cuts = quantiles(seconds, n=100)
    return f"{len(seconds)} runs, p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms"
