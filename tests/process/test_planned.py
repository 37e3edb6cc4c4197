"""Schedules and batches with real processes: they go on without an API, and though workers are killed (ADR 0118)."""

from __future__ import annotations

from typing import Any

import pytest

from features.schedules import schedule_keys
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process

AGENT: dict[str, Any] = {"model": "fake/tool-1", "tools": ["calculator"]}
NO_WORKER: dict[str, Any] = {"reason": "no_worker", "code": "queue:model"}


def replace(cluster: Cluster, name: str) -> None:
    """Kill a process, and start another one."""
    cluster.kill(name)
    cluster.start(name)


def read(cluster: Cluster, path: str) -> dict[str, Any]:
    answer = cluster.http.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def waits_for(cluster: Cluster, path: str) -> dict[str, Any] | None:
    """What a schedule or a batch waits for, as it says."""
    waiting: dict[str, Any] | None = read(cluster, path)["waiting"]
    return waiting and {name: waiting[name] for name in NO_WORKER}


def tagged(cluster: Cluster, tag: str) -> set[str]:
    """The runs that have a tag, which the checkers then know."""
    found: list[dict[str, Any]] = read(cluster, f"/v1/runs?tag={tag}&limit=200")["data"]
    cluster.submitted += [run["id"] for run in found if run["id"] not in cluster.submitted]
    return {run["id"] for run in found}


def started(cluster: Cluster) -> int:
    """Ticks that have begun a run, as Redis has it."""
    server: Any
    with cluster.redis() as server:
        return int(server.hget(schedule_keys.SCHEDULES_COUNTS, "started") or 0)


def test_a_schedule_goes_on_while_no_api_is_there(cluster: Cluster) -> None:
    before = started(cluster)
    body = {"every": 10, "run": {"agent": AGENT, "input": "hello"}}
    assert cluster.http.put("/v1/schedules/often", json=body).status_code == 201
    assert waits_for(cluster, "/v1/schedules/often") is None
    cluster.kill("api")
    eventually(lambda: started(cluster) > before)
    cluster.start("api")
    ticks: list[dict[str, Any]] = read(cluster, "/v1/schedules/often")["ticks"]
    assert cluster.http.post("/v1/schedules/often/pause").status_code == 200
    assert ticks[-1]["outcome"] == "started"
    assert ticks[-1]["run_id"] in tagged(cluster, "schedule:often")
    for run_id in tagged(cluster, "schedule:often"):
        assert cluster.ended(run_id).status == "completed"
    assert cluster.http.delete("/v1/schedules/often").status_code == 204


def test_a_batch_has_one_run_a_cell_though_api_and_worker_are_killed(cluster: Cluster) -> None:
    agents = [{**AGENT, "name": "a"}, {**AGENT, "name": "b"}]
    items = [{"input": f"question {n}"} for n in range(12)]
    answer = cluster.http.post("/v1/batches", json={"agents": agents, "items": items, "window": 6})
    assert answer.status_code == 201, answer.text
    path = f"/v1/batches/{answer.json()['id']}"
    eventually(lambda: read(cluster, path)["ended"])
    replace(cluster, "api")
    replace(cluster, "worker")
    # Whoever was killed may have had it, for ten seconds.
    eventually(lambda: read(cluster, path)["state"] == "done")
    assert [total["ended"] for total in read(cluster, path)["totals"]] == [{"completed": 12}] * 2
    results: list[dict[str, Any]] = read(cluster, f"{path}/results?limit=500")["data"]
    runs = [result["run_id"] for result in results]
    assert [result["cell"] for result in results] == [*range(24)]
    assert len(set(runs)) == 24
    assert tagged(cluster, f"batch:{answer.json()['id']}") == set(runs)


def test_what_is_planned_says_that_no_worker_is_there(cluster: Cluster) -> None:
    cluster.kill("worker")
    try:
        body = {"every": 3600, "run": {"agent": AGENT, "input": "hello"}}
        assert cluster.http.put("/v1/schedules/later", json=body).status_code == 201
        answer = cluster.http.post("/v1/batches", json={"agents": [AGENT], "items": [{"input": "?"}], "complete": True})
        assert answer.status_code == 201, answer.text
        path = f"/v1/batches/{answer.json()['id']}"
        for place in (path, "/v1/schedules/later"):
            assert eventually(lambda: waits_for(cluster, place)) == NO_WORKER  # noqa: B023
    finally:
        cluster.start("worker")
    eventually(lambda: read(cluster, path)["state"] == "done")
    assert waits_for(cluster, path) is None
    assert waits_for(cluster, "/v1/schedules/later") is None
    assert len(tagged(cluster, f"batch:{answer.json()['id']}")) == 1
    assert cluster.http.delete("/v1/schedules/later").status_code == 204
