"""The children of a tools worker: when they come, and what is told of their places before."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.steps.leases import Delivery
from tests.process.broker import ON_RABBITMQ
from tests.process.cluster import Cluster
from tests.process.descriptors import starved
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture
def fresh(cluster: Cluster) -> Cluster:
    """A tools worker that has had no call."""
    cluster.kill("tools")
    cluster.start("tools")
    return cluster


def tools_workers(cluster: Cluster) -> dict[str, int]:
    """How many calls each process of the one worker takes, as it tells."""
    (pid,) = cluster.stack.pids("tools")
    (queue,) = cluster.http.get("/v1/queues?queue=tools").json()["data"]
    return {each["id"]: each["capacity"] for each in queue["workers"] if f"tools.{pid}@" in each["id"]}


def test_a_child_comes_with_its_first_call_and_the_worker_tells_of_all_places_before(fresh: Cluster) -> None:
    (pid,) = fresh.stack.pids("tools")
    assert fresh.children_of("tools") == []
    (worker,) = eventually(lambda: tools_workers(fresh))
    assert worker.endswith(f"/{pid}")
    assert tools_workers(fresh) == {worker: 4}
    declared: list[dict[str, Any]] = fresh.http.get("/v1/tools").json()["data"]
    assert worker in next(each for each in declared if each["name"] == "record")["workers"]

    assert fresh.ended(fresh.submit("tool-1", tools=["record"])).status == "completed"
    assert fresh.children_of("tools")
    eventually(lambda: sum(tools_workers(fresh).values()) == 4, why="a place is told of twice, or never")

    assert len(fresh.all_children()) == 4
    eventually(lambda: list(tools_workers(fresh).values()) == [1] * 4, why="not every child tells of itself")


def test_copies_of_a_call_that_is_made_take_no_place_from_others(fresh: Cluster) -> None:
    """As they come where a child takes long to start: each of them would wait for the end of the call."""
    long = fresh.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record"])
    (start,) = eventually(lambda: fresh.tool_starts(long))
    _, seq, call = start["call"].split(":")
    copy = Delivery("tools", long, fresh.run(long).conversation_id, f"{seq}/{call}", 2)
    fresh.broker.deliver(copy, 10)
    assert fresh.ended(fresh.submit("tool-1", tools=["record"])).status == "completed"
    assert fresh.run(long).status == "running"
    assert len(fresh.tool_starts(long)) == 1
    fresh.cancel(long)


def test_a_call_waits_for_a_worker_that_cannot_start_a_child_yet(fresh: Cluster) -> None:
    (pid,) = fresh.stack.pids("tools")
    eventually(lambda: tools_workers(fresh))
    with starved(pid):
        run_id = fresh.submit("tool-1", tools=["record"])
        eventually(lambda: "no process can be started" in fresh.new_log("tools"))
    assert fresh.ended(run_id).status == "completed"
    assert fresh.stack.pids("tools") == [pid], "it ended"
    assert len(fresh.tool_starts(run_id)) == 1
    # The child has the limit that its parent had: no other test must meet it.
    fresh.kill("tools")
    fresh.start("tools")


@pytest.mark.skipif(ON_RABBITMQ, reason="cuts the connections on which Redis sends calls")
def test_a_worker_that_connects_again_takes_as_many_calls_as_before(fresh: Cluster) -> None:
    fresh.expect_traceback("ConnectionError")
    assert fresh.ended(fresh.submit("tool-1", tools=["record"])).status == "completed"
    with fresh.deliveries() as server:
        for client in fresh.takers():
            server.client_kill_filter(_id=client)
    eventually(lambda: "Connected to" in fresh.new_log("tools").partition("onnection to broker lost")[2])
    run_id = fresh.submit("parallel-3", '[[args {"seconds": 30}]]', tools=["record"])
    eventually(lambda: len(fresh.tool_starts(run_id)) == 3)
    fresh.cancel(run_id)
