"""A delivery is a hint: lost, doubled or late, nothing breaks."""

from __future__ import annotations

import time

import pytest

from palaver.leases import Delivery
from palaver.testing import eventually
from tests.process.cluster import LEASE, Cluster

pytestmark = pytest.mark.process


def test_a_broker_that_lost_everything_loses_no_run(cluster: Cluster) -> None:
    cluster.kill("worker")
    cluster.kill("tools")
    runs = [cluster.submit("tool-1", tools=["record"]) for _ in range(40)]
    eventually(lambda: cluster.broker.depth("model") == 40)
    cluster.broker.lose()
    cluster.start("worker")
    cluster.start("tools")
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"


def test_losses_while_runs_are_under_way_cost_only_time(cluster: Cluster) -> None:
    runs = [cluster.submit("tool-3+rate-100", tools=["record_idempotent"]) for _ in range(20)]
    cluster.broker.lose(200)
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"


def test_doubled_deliveries_are_not_worked_on_twice(cluster: Cluster) -> None:
    cluster.kill("worker")
    runs = [cluster.submit("tool-2+rate-100", tools=["record"]) for _ in range(20)]
    cluster.broker.double("model", 5)
    eventually(lambda: cluster.broker.depth("model") == 20 * 6)
    cluster.start("worker")
    cluster.start("worker")

    def double_tool_calls() -> bool:
        cluster.broker.double("tools", 5)
        return all(cluster.run(run_id).status.terminal for run_id in runs)

    eventually(double_tool_calls, within=30)
    eventually(cluster.broker.empty, within=10)
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.model_calls(run_id)) == 3
        assert len(cluster.tool_starts(run_id)) == 2


def test_a_step_that_is_delivered_again_keeps_its_lease(cluster: Cluster) -> None:
    """Copies that arrive while it is worked on are dropped, and are no reason to forget it: it takes longer than a
    lease."""
    run_id = cluster.submit(f"say-{int(40 * LEASE)}+rate-20")
    cluster.saw(run_id, "message.delta")
    for _ in range(5):
        cluster.broker.deliver(first_step(cluster, run_id), 20)
        eventually(cluster.broker.empty)
    assert cluster.ended(run_id).status == "completed"
    assert len(cluster.tries(run_id)) == 1


def test_a_cancel_finds_a_step_that_was_delivered_again(cluster: Cluster) -> None:
    run_id = cluster.submit("say-400+rate-20")
    cluster.saw(run_id, "message.delta")
    cluster.broker.deliver(first_step(cluster, run_id), 20)
    eventually(cluster.broker.empty)
    cluster.cancel(run_id)
    run = cluster.ended(run_id)
    assert run.cancel is not None
    assert run.cancel.stopped_ms is not None
    assert run.cancel.stopped_ms < 300


def first_step(cluster: Cluster, run_id: str) -> Delivery:
    """A copy of the message that asks for the run's first step."""
    return Delivery("model", run_id, cluster.run(run_id).conversation_id, "1", 1)


def test_ancient_deliveries_of_ended_runs_are_dropped(cluster: Cluster) -> None:
    run_id = cluster.submit("echo")
    cluster.ended(run_id)
    cluster.broker.deliver(first_step(cluster, run_id))
    eventually(cluster.broker.empty)
    follow = cluster.submit("echo", conversation_id=cluster.run(run_id).conversation_id)
    assert cluster.ended(follow).status == "completed"
    assert len(cluster.model_calls(run_id)) == 1


def test_a_backlog_does_not_multiply(cluster: Cluster) -> None:
    """With many steps waiting, an unclaimed delivery is one that waits: sweepers send none of them again."""
    cluster.kill("tools")
    runs = [cluster.submit("tool-1", tools=["record"]) for _ in range(60)]
    eventually(lambda: cluster.broker.depth("tools") == 60)
    until = time.monotonic() + 2.5
    eventually(lambda: time.monotonic() >= until or cluster.broker.depth("tools") > 60)
    assert cluster.broker.depth("tools") == 60
    cluster.start("tools")
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
