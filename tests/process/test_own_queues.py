"""Queues that tools name: who takes from one, what a run says while nobody does, and a worker of one that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from features.stack.plan import COMMANDS
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

GPU = [*COMMANDS["tools"], "-Q", "gpu", "-n", "gpu@%h", "-c", "2"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver with a worker for tools, and none for those that name a queue."""
    with Cluster(
        tmp_path_factory.mktemp("queued"),
        processes={"flower": 0, "gpu": 0},
        commands={**COMMANDS, "gpu": GPU},
        environment={"PALAVER_TOOLS": "tests.process.tools,tests.process.queued_tools"},
    ) as cluster:
        yield cluster


@pytest.fixture
def queued(stack: Cluster) -> Iterator[Cluster]:
    """It, with all that must be true after each test."""
    stack.mark()
    yield stack
    check(stack)
    stack.heal()
    for number in range(len(stack.stack.pids("gpu"))):
        stack.kill("gpu", number)


def _queue(cluster: Cluster) -> dict[str, Any]:
    (queue,) = cluster.http.get("/v1/queues?queue=gpu").json()["data"]
    return dict(queue)


def _waits_for_a_worker(cluster: Cluster, run_id: str) -> None:
    def told() -> bool:
        waiting = cluster.run(run_id).waiting
        return waiting is not None and (waiting.reason, waiting.code) == ("no_worker", "queue:gpu")

    eventually(told)


def _taken_by(cluster: Cluster, run_id: str) -> list[str]:
    """The worker of each try of the run's calls."""
    starts = [event.data for event in cluster.events(run_id) if event.type == "step.started"]
    return [data["worker"] for data in starts if "/" in data["step"]]


def test_a_queue_that_no_worker_takes_from_is_named_on_the_run_until_one_comes(queued: Cluster) -> None:
    run_id = queued.submit("tool-1", tools=["render"])
    _waits_for_a_worker(queued, run_id)
    ordinary = queued.submit("tool-1", tools=["record"])
    assert queued.ended(ordinary).status == "completed", "others are not held up"

    queue = _queue(queued)
    assert (queue["ready"], queue["workers"]) == (1, [])
    lacked = queued.http.get("/v1/queues").json()["no_worker"]
    assert lacked == [{"code": "queue:gpu", "steps": 1, "run_id": run_id}]
    assert queued.http.get("/v1/queues?format=keda&queue=gpu").json() == {"value": 1}, "KEDA starts one"
    assert 'palaver_queue_ready{queue="gpu"} 1\n' in queued.http.get("/metrics").text

    queued.start("gpu")
    assert queued.ended(run_id).status == "completed"
    assert queued.run(run_id).waiting is None
    assert queued.http.get("/v1/queues").json()["no_worker"] == []


def test_what_a_killed_worker_of_a_queue_had_waits_for_the_next_one_there(queued: Cluster) -> None:
    queued.start("gpu")
    run_id = queued.submit("tool-1", '[[args {"seconds": 60}]]', tools=["render"])
    eventually(lambda: queued.tool_starts(run_id, "render"))
    queued.kill("gpu")
    _waits_for_a_worker(queued, run_id)
    queued.start("gpu")
    eventually(lambda: len(queued.tool_starts(run_id, "render")) == 2)
    queued.http.post(f"/v1/runs/{run_id}/cancel")
    assert queued.ended(run_id).status == "cancelled"
    assert len(_taken_by(queued, run_id)) == 2
