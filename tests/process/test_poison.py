"""What ends its worker is to blame, and nobody else: not what ran beside it, not what was killed with it (ADR 0016)."""

from __future__ import annotations

import time

import pytest

from palaver.testing import eventually
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process


def test_a_poison_call_takes_nothing_from_the_others(cluster: Cluster) -> None:
    cluster.expect_traceback("WorkerLostError")
    others = [cluster.submit("tool-3+rate-400", tools=["record"]) for _ in range(6)]
    begun = time.monotonic()
    poison = [cluster.submit("tool-1", tools=["crash_idempotent"]) for _ in range(2)]
    others += [cluster.submit("tool-3+rate-400", tools=["record"]) for _ in range(14)]
    for run_id in poison:
        run = cluster.ended(run_id, within=30)
        assert run.status == "failed"
        assert (run.error or {})["class"] == "worker_lost"
        assert len(cluster.tool_starts(run_id)) == 3
    assert time.monotonic() - begun < 30
    for run_id in others:
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.tool_starts(run_id)) == 3, "something was done twice, or not at all"
        assert len(cluster.model_calls(run_id)) == 4


@pytest.mark.chaos
def test_steps_outlive_more_deaths_of_their_workers_than_one_step_may_cause(cluster: Cluster) -> None:
    """Four model workers are killed one after the other, each with all the runs in its hands."""
    cluster.start("worker")
    runs = [cluster.submit("say-100+rate-20") for _ in range(20)]
    for number in range(4):
        held = eventually(lambda: most_held(cluster, runs), within=60)
        cluster.kill("worker", held[0])
        cluster.start("worker")
        assert all(cluster.run(run_id).status != "failed" for run_id in runs), number
    for run_id in runs:
        assert cluster.ended(run_id, within=90).status == "completed"


def most_held(cluster: Cluster, runs: list[str]) -> tuple[int, ...]:
    """The model worker with the most of these runs under way, once it has five of them."""
    going = [run_id for run_id in runs if not cluster.run(run_id).status.terminal]
    assert going, "there was nothing left to kill"
    pids = cluster.stack.pids("worker")
    newest = [int(cluster.tries(run_id)[-1].rpartition("/")[2]) for run_id in going if cluster.tries(run_id)]
    counts = [newest.count(pid) for pid in pids]
    open_calls = sum(1 for call in cluster.model_calls() if call.run in going and call.outcome == "open")
    return (counts.index(max(counts)),) if max(counts) >= 5 and open_calls >= 5 else ()
