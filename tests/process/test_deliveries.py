"""A delivery is a hint: lost, doubled or late, nothing breaks."""

from __future__ import annotations

import random
import time
from contextlib import closing

import pytest

from palaver.delivery.deliveries import Publisher
from palaver.steps.leases import Delivery
from palaver.vocabulary.step_kinds import AT_ONCE, WINDOW
from tests.process.cluster import LEASE, Cluster
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import eventually

pytestmark = pytest.mark.process


@pytest.mark.skipif(ON_CLUSTER, reason="each shard has a window of its own")
def test_a_broker_that_lost_everything_loses_no_run(cluster: Cluster) -> None:
    cluster.kill("worker")
    cluster.kill("tools")
    runs = [cluster.submit("tool-1", tools=["record"]) for _ in range(40)]
    eventually(lambda: cluster.broker.depth("model") == WINDOW)
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


@pytest.mark.skipif(ON_CLUSTER, reason="each shard has a window of its own")
def test_doubled_deliveries_are_not_worked_on_twice(cluster: Cluster) -> None:
    """Each comes ten times."""
    cluster.kill("worker")
    runs = [cluster.submit("tool-2+rate-100", tools=["record"]) for _ in range(20)]
    cluster.broker.double("model", 9)
    eventually(lambda: cluster.broker.depth("model") == WINDOW * 10)
    cluster.start("worker")
    cluster.start("worker")

    def double_tool_calls() -> bool:
        cluster.broker.double("tools", 9)
        return all(cluster.run(run_id).status.terminal for run_id in runs)

    eventually(double_tool_calls)
    eventually(cluster.broker.empty)
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
    assert cluster.ended(run_id).status == "cancelled"
    assert cluster.outcomes(run_id) == ["disconnected"]


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


def test_deliveries_in_any_order_and_from_long_ago_are_dropped(cluster: Cluster) -> None:
    """Of steps that were, that are under way and that are yet to come; while the runs go on, and after their end."""
    chance = random.Random(1)
    runs = [cluster.submit("tool-5+rate-100", tools=["record"]) for _ in range(6)]
    with closing(Publisher(cluster.broker.url)) as publisher:

        def replay() -> None:
            deliveries = [each for run_id in runs for each in deliveries_of(cluster, run_id)]
            for _ in range(2):
                publisher.publish(chance.sample(deliveries, len(deliveries)))

        for step in (1, 3, 5):
            eventually(lambda step=step: all(cluster.run(run_id).step >= step for run_id in runs))  # type: ignore[misc]
            replay()
        for run_id in runs:
            assert cluster.ended(run_id).status == "completed"
        replay()
        eventually(cluster.broker.empty)
    for run_id in runs:
        assert len(cluster.model_calls(run_id)) == 6
        assert len(cluster.tool_starts(run_id)) == 5


def deliveries_of(cluster: Cluster, run_id: str) -> list[Delivery]:
    """One for each step of the run that was begun, and for the next two."""
    run = cluster.run(run_id)
    begun = [event.data["step"] for event in cluster.events(run_id) if event.type == "step.started"]
    coming = [str(run.step + 1), str(run.step + 2)]
    return [
        Delivery("tools" if "/" in step else "model", run_id, run.conversation_id, step, 1) for step in begun + coming
    ]


@pytest.mark.skipif(ON_CLUSTER, reason="each shard has a window of its own")
def test_a_backlog_does_not_multiply(cluster: Cluster) -> None:
    """With many steps waiting, an unclaimed delivery is one that waits: sweepers send none of them again."""
    cluster.kill("tools")
    # Until Redis has noticed that, the next delivery goes to who is dead.
    eventually(lambda: len(cluster.takers()) <= 1)
    runs = [cluster.submit("tool-1", tools=["record"]) for _ in range(60)]
    eventually(lambda: cluster.broker.depth("tools") >= 1)
    until = time.monotonic() + 2.5
    eventually(lambda: time.monotonic() >= until or cluster.broker.depth("tools") > AT_ONCE)
    assert cluster.broker.depth("tools") <= AT_ONCE
    cluster.start("tools")
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
