"""Workers come and go while runs are shared among them; each role is what runs here."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process


def test_workers_that_join_and_die_share_two_hundred_runs(cluster: Cluster) -> None:
    cluster.start("worker")
    runs = [cluster.submit("tool-3+rate-20", tools=["calculator", "record_idempotent"]) for _ in range(100)]
    cluster.start("worker")
    runs += [cluster.submit("tool-3+rate-20", tools=["calculator", "record_idempotent"]) for _ in range(100)]
    eventually(lambda: len(set(workers_of(cluster, runs[-40:]))) >= 3, within=20)
    cluster.kill("worker", 1)
    for run_id in runs:
        assert cluster.ended(run_id, within=40).status == "completed"
    shares = workers_of(cluster, runs)
    assert len(shares) == 3
    assert min(shares.values()) > 10


def test_tools_workers_take_no_more_than_they_have_children_for(cluster: Cluster) -> None:
    """Sixteen calls of a second on two workers with four children each: two rounds, not three."""
    cluster.start("tools")
    text = '[[args {"seconds": 1.0}]]'
    runs = [cluster.submit("parallel-8", text, tools=["record_idempotent"]) for _ in range(2)]
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
    starts = [start for run_id in runs for start in cluster.tool_starts(run_id)]
    per_child = Counter(start["pid"] for start in starts)
    assert len(per_child) == 8
    assert max(per_child.values()) <= 3


def workers_of(cluster: Cluster, runs: list[str]) -> Counter[str]:
    """How many tries of model steps each worker made."""
    return Counter(worker for run_id in runs for worker in cluster.tries(run_id))
