"""What ends its worker is to blame, and nobody else: not what ran beside it, not what was killed with it (ADR 0016)."""

from __future__ import annotations

import time

import pytest

from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process


def test_a_poison_call_takes_nothing_from_the_others(cluster: Cluster) -> None:
    cluster.expect_traceback("WorkerLostError")
    others = [cluster.submit("tool-3+rate-400", tools=["record"]) for _ in range(6)]
    poison = [cluster.submit("tool-1", tools=["crash_idempotent"]) for _ in range(2)]
    others += [cluster.submit("tool-3+rate-400", tools=["record"]) for _ in range(14)]
    for run_id in poison:
        run = cluster.ended(run_id)
        assert run.status == "failed"
        assert run.error is not None
        assert run.error["class"] == "worker_lost"
        assert len(cluster.tool_starts(run_id)) == 3
    for run_id in others:
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.tool_starts(run_id)) == 3, "something was done twice, or not at all"
        assert len(cluster.model_calls(run_id)) == 4


@pytest.mark.parametrize(
    ("neighbours", "at_once", "most"),
    [
        (20, False, 3),
        pytest.param(20, True, 4, marks=pytest.mark.chaos),
        pytest.param(100, True, 5, marks=pytest.mark.chaos),
    ],
    ids=["20 that run already", "20 that begin with it", "100 that begin with it"],
)
def test_poison_among_neighbours_ends_few_model_workers(
    cluster: Cluster, neighbours: int, at_once: bool, most: int
) -> None:
    """There are two model workers, and who ends is started anew. The model answers with a call that ends its worker."""
    cluster.start("worker")
    others = [cluster.submit("say-1000+rate-5") for _ in range(neighbours)]
    if not at_once:
        for run_id in others:
            cluster.saw(run_id, "message.delta")
        outlived = time.monotonic() + 2.0
        eventually(lambda: time.monotonic() >= outlived)
    poison = cluster.submit("tool-1", tools=["crash_inline"])

    def has_ended() -> bool:
        if sum(child.running for child in cluster.children("worker")) < 2:
            cluster.start("worker")
        return cluster.run(poison).status.terminal

    eventually(has_ended)
    statuses = {cluster.run(run_id).status for run_id in others}
    for run_id in others:
        cluster.cancel(run_id)
    run = cluster.run(poison)
    assert run.error is not None
    assert (run.status, run.error["class"]) == ("failed", "worker_lost")
    assert len(cluster.tries(poison)) <= most, cluster.timeline(poison)
    assert statuses == {"running"}


@pytest.mark.chaos
def test_steps_outlive_more_deaths_of_their_worker_than_one_step_may_cause(cluster: Cluster) -> None:
    """The only model worker is killed four times, each time with many runs in its hands."""
    runs = [cluster.submit("say-400+rate-20") for _ in range(20)]
    for _ in range(4):
        eventually(lambda: in_hand(cluster) >= 10)
        cluster.kill("worker")
        cluster.start("worker")
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
    assert max(len(cluster.tries(run_id)) for run_id in runs) > 3


def in_hand(cluster: Cluster) -> int:
    """Steps that the model worker says it has."""
    (pid,) = cluster.stack.pids("worker")
    reports = cluster.ask(lambda store: store.fleet.workers())
    return sum(report.in_flight for report in reports if report.id.endswith(f"/{pid}"))
