"""A delivery is a hint: lost, doubled or late, nothing breaks."""

from __future__ import annotations

import pytest

from palaver.testing import eventually
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

QUEUES = ("model", "tools", "model.recovered", "tools.recovered")


def test_a_broker_that_lost_everything_loses_no_run(cluster: Cluster) -> None:
    cluster.kill("worker")
    cluster.kill("tools")
    runs = [cluster.submit("tool-1", tools=["record"]) for _ in range(40)]
    with cluster.redis() as broker:
        assert broker.llen("model") == 40
        broker.delete(*QUEUES)
    cluster.start("worker")
    cluster.start("tools")
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"


def test_losses_while_runs_are_under_way_cost_only_time(cluster: Cluster) -> None:
    runs = [cluster.submit("tool-3+rate-100", tools=["record_idempotent"]) for _ in range(20)]
    with cluster.redis() as broker:
        for _ in range(200):
            broker.delete(*QUEUES)
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"


def test_doubled_deliveries_are_not_worked_on_twice(cluster: Cluster) -> None:
    cluster.kill("worker")
    runs = [cluster.submit("tool-2+rate-100", tools=["record"]) for _ in range(20)]
    copy = 5
    with cluster.redis() as broker:
        messages = broker.lrange("model", 0, -1)
        broker.lpush("model", *(message for message in messages for _ in range(copy)))
        cluster.start("worker")
        cluster.start("worker")

        def double_tool_calls() -> bool:
            for message in broker.lrange("tools", 0, -1):
                broker.lpush("tools", *[message] * copy)
            return all(cluster.run(run_id).status.terminal for run_id in runs)

        eventually(double_tool_calls, within=30)
        eventually(lambda: not any(broker.llen(queue) for queue in QUEUES), within=10)
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.model_calls(run_id)) == 3
        assert len(cluster.tool_starts(run_id)) == 2


def test_ancient_deliveries_of_ended_runs_are_dropped(cluster: Cluster) -> None:
    cluster.kill("worker")
    run_id = cluster.submit("echo")
    with cluster.redis() as broker:
        (message,) = broker.lrange("model", 0, -1)
        cluster.start("worker")
        cluster.ended(run_id)
        broker.lpush("model", message)
        eventually(lambda: not broker.llen("model"))
    follow = cluster.submit("echo", conversation_id=cluster.run(run_id).conversation_id)
    assert cluster.ended(follow).status == "completed"
    assert len(cluster.model_calls(run_id)) == 1
