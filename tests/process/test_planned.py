"""Schedules and batches with real processes, whose API is killed (ADRs 0119 and 0120)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process

AGENT: dict[str, Any] = {"model": "fake/tool-1", "tools": ["calculator"]}


def replace_api(cluster: Cluster) -> None:
    """Kill the API, and start another one."""
    cluster.kill("api")
    cluster.start("api")


def read(cluster: Cluster, path: str) -> dict[str, Any]:
    answer = cluster.http.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def tagged(cluster: Cluster, tag: str) -> set[str]:
    """The runs that have a tag, which the checkers then know."""
    found: list[dict[str, Any]] = read(cluster, f"/v1/runs?tag={tag}&limit=200")["data"]
    cluster.submitted += [run["id"] for run in found if run["id"] not in cluster.submitted]
    return {run["id"] for run in found}


def test_a_schedule_goes_on_with_another_api(cluster: Cluster) -> None:
    body = {"every": 10, "run": {"agent": AGENT, "input": "hello"}}
    assert cluster.http.put("/v1/schedules/often", json=body).status_code == 201
    replace_api(cluster)

    def ticked() -> list[dict[str, Any]]:
        ticks: list[dict[str, Any]] = read(cluster, "/v1/schedules/often")["ticks"]
        return ticks

    (tick,) = eventually(ticked)
    assert cluster.http.post("/v1/schedules/often/pause").status_code == 200
    assert tick["outcome"] == "started"
    assert tick["run_id"] in tagged(cluster, "schedule:often")
    for run_id in tagged(cluster, "schedule:often"):
        assert cluster.ended(run_id).status == "completed"
    assert cluster.http.delete("/v1/schedules/often").status_code == 204


def test_a_batch_has_one_run_a_cell_though_the_api_is_killed(cluster: Cluster) -> None:
    agents = [{**AGENT, "name": "a"}, {**AGENT, "name": "b"}]
    items = [{"input": f"question {n}"} for n in range(12)]
    answer = cluster.http.post("/v1/batches", json={"agents": agents, "items": items, "window": 6})
    assert answer.status_code == 201, answer.text
    path = f"/v1/batches/{answer.json()['id']}"
    eventually(lambda: read(cluster, path)["ended"])
    replace_api(cluster)
    # Whoever was killed may have had it, for ten seconds.
    eventually(lambda: read(cluster, path)["state"] == "done")
    assert [total["ended"] for total in read(cluster, path)["totals"]] == [{"completed": 12}] * 2
    results: list[dict[str, Any]] = read(cluster, f"{path}/results?limit=500")["data"]
    runs = [result["run_id"] for result in results]
    assert [result["cell"] for result in results] == [*range(24)]
    assert len(set(runs)) == 24
    assert tagged(cluster, f"batch:{answer.json()['id']}") == set(runs)
