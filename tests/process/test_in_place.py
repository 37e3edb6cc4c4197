"""A worker goes on with a run where it is. Whoever looks sees a task for each step, and nobody waits longer for it."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from features.stack.plan import COMMANDS
from palaver.vocabulary.step_kinds import QUEUES
from tests.process.broker import ON_RABBITMQ
from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.long]


@contextmanager
def published(cluster: Cluster) -> Iterator[list[int]]:
    """Deliveries that are published within the block: how many together. Complete behind it."""
    found: list[int] = []
    with cluster.deliveries() as server, server.monitor() as monitor:

        def count() -> None:
            for command in monitor.listen():
                if command["command"].startswith(tuple(f"LPUSH {queue}" for queue in QUEUES)):
                    found.append(command["command"].count("delivery_tag"))
                elif command["command"] == "ECHO enough":
                    return

        counting = threading.Thread(target=count, daemon=True)
        counting.start()
        try:
            yield found
        finally:
            server.echo("enough")
            counting.join(30)
            assert not counting.is_alive()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose one worker asks models and makes calls, with Flower."""
    commands = {**COMMANDS, "worker": (*COMMANDS["worker"], "--tools")}
    environment = {"FLOWER_UNAUTHENTICATED_API": "1", "PALAVER_TOOLS": "tests.process.tools"}
    processes = {"api": 1, "worker": 1, "tools": 0, "flower": 1}
    with Cluster(tmp_path, processes=processes, commands=commands, environment=environment) as cluster:
        yield cluster


def running(cluster: Cluster) -> dict[str, int]:
    """The steps of each queue that workers say they have."""
    return {each["name"]: each["running"] for each in cluster.http.get("/v1/queues").json()["data"]}


def test_calls_in_place_and_calls_by_delivery_are_no_more_than_its_places(tmp_path: Path) -> None:
    """Ten calls of a turn in a worker of four places: it begins four with the model's step, and is sent the others."""
    commands = {**COMMANDS, "worker": (*COMMANDS["worker"], "--tools", "-c", "4")}
    processes = {"api": 1, "worker": 1, "tools": 0, "flower": 0}
    environment = {"PALAVER_TOOLS": "tests.process.tools"}
    with Cluster(tmp_path, processes=processes, commands=commands, environment=environment) as four:
        gate = four.gate()
        run_id = four.submit("parallel-10", gate.text, tools=["record_async"])
        eventually(lambda: len(four.tool_starts(run_id)) >= 4)
        eventually(lambda: running(four) == {"model": 0, "tools": 4})
        gate.open()
        assert four.ended(run_id).status == "completed"
        now = most = 0
        for line in four.tool_ledger():
            now += {"begin": 1, "end": -1}[line["event"]]
            most = max(most, now)
        assert len(four.tool_starts(run_id)) == 10
        assert most == 4


@pytest.mark.skipif(ON_RABBITMQ, reason="counts what Redis was sent")
def test_a_run_with_tools_needs_one_delivery_and_flower_has_each_step(both: Cluster) -> None:
    eventually(lambda: both.ended(both.submit("echo")) and told(both))
    with published(both) as deliveries:
        run_id = both.submit("parallel-3", tools=["record_async"])
        assert both.ended(run_id).status == "completed"
        turns = both.submit("tool-14", tools=["record_async"])
        assert both.ended(turns).status == "completed"
    assert sum(deliveries) == 2
    expected = {
        f"{each}:{event.data['step'].replace('/', ':')}:1": "tool" if "/" in event.data["step"] else "model"
        for each in (run_id, turns)
        for event in both.events(each)
        if event.type == "step.started"
    }
    assert Counter(expected.values()) == {"model": 2 + 15, "tool": 3 + 14}

    def shown() -> dict[str, Any]:
        tasks = {name: task for name, task in told(both).items() if name in expected}
        return tasks if sum(task["state"] == "SUCCESS" for task in tasks.values()) == len(expected) else {}

    tasks = eventually(shown)
    assert {name: task["name"] for name, task in tasks.items()} == {
        name: f"palaver.{kind}_step" for name, kind in expected.items()
    }
    titles = {"model": ("fake/parallel-3", "fake/tool-14"), "tool": ("record_async",)}
    for name, task in tasks.items():
        assert task["args"] in titles[expected[name]]
        assert task["received"] <= task["started"] <= task["succeeded"]


def told(cluster: Cluster) -> dict[str, Any]:
    """Flower's tasks."""
    return dict(httpx.get(f"{cluster.stack.flower_url}/api/tasks", params={"limit": 5000}, timeout=PATIENCE).json())


@pytest.mark.skipif(ON_RABBITMQ, reason="counts what Redis was sent")
def test_it_takes_a_delivery_each_time_the_bound_is_used_up(cluster: Cluster) -> None:
    with published(cluster) as deliveries:
        assert cluster.ended(cluster.submit("tool-50", tools=["calculator"])).status == "completed"
    # The first of them stand for 17 steps each: one that was delivered, and those behind it in its place.
    assert sum(deliveries) == 3


@pytest.mark.skipif(ON_CLUSTER, reason="who waits in other shards is not seen")
@pytest.mark.skipif(ON_RABBITMQ, reason="counts what Redis was sent")
@pytest.mark.parametrize("crowd", [100, pytest.param(500, marks=pytest.mark.chaos)])
def test_beside_a_crowd_that_waits_nobody_goes_on(cluster: Cluster, crowd: int) -> None:
    """So many runs wait behind a worker with four places: each step of those that have begun is a delivery."""
    cluster.kill("worker")
    runs = [cluster.submit("tool-4", tools=["calculator"]) for _ in range(crowd)]
    with published(cluster) as deliveries, one_more(cluster, "worker", options=("-c", "4")):
        for run_id in runs:
            assert cluster.ended(run_id).status == "completed"
    # All but those of the last runs, behind whom nobody waits.
    assert sum(deliveries) > (crowd - 20) * 4


def test_a_worker_that_drains_goes_on_with_nothing(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-90+rate-100", tools=["calculator"])
    cluster.saw(run_id, "step.started", step="5")
    leaving = cluster.terminate("worker")
    eventually(lambda: not leaving.running)
    cluster.start("worker")
    assert cluster.ended(run_id).status == "completed"
    # Each step once, and not all of them while the worker was about to leave.
    by_worker = Counter(cluster.tries(run_id))
    assert by_worker.total() == 91
    assert len(by_worker) == 2


def test_killed_between_two_steps_it_loses_none(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-60+rate-200", tools=["calculator"])
    cluster.saw(run_id, "step.started", step="7")
    cluster.children("worker")[0].kill(signal.SIGKILL)
    cluster.start("worker")
    run = cluster.ended(run_id)
    assert (run.status, run.step, run.usage.tool_calls) == ("completed", 61, 60)
    assert len(set(cluster.tries(run_id))) == 2
