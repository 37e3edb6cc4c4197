"""Redis or the API gone for a while."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import httpx
import pytest

from palaver.testing import eventually
from tests.process.cluster import LEASE, Cluster, stream

pytestmark = pytest.mark.process


@pytest.mark.parametrize("crash", [True, False], ids=["killed", "stopped"])
def test_runs_go_on_after_redis_restarted(cluster: Cluster, crash: bool) -> None:
    runs = [cluster.submit("tool-3+rate-20", tools=["record_idempotent", "calculator"]) for _ in range(8)]
    cluster.saw(runs[-1], "step.started")
    if crash:
        cluster.kill("redis")
    else:
        pid = cluster.stack.kill("redis", 0, signal.SIGTERM)
        eventually(lambda: not cluster.stack.pids("redis"), why=str(pid))
    cluster.start("redis")
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"


def test_a_pause_of_redis_longer_than_a_lease_costs_no_second_model_call(cluster: Cluster) -> None:
    run_id = cluster.submit(f"say-{int(20 * (LEASE + 3))}+rate-20")
    cluster.saw(run_id, "message.delta")
    until = time.monotonic() + LEASE + 1
    paused = cluster.stack.kill("redis", 0, signal.SIGSTOP)
    eventually(lambda: time.monotonic() >= until)
    os.kill(paused, signal.SIGCONT)
    assert cluster.ended(run_id).status == "completed"
    assert len(cluster.model_calls(run_id)) == 1


def test_the_same_key_makes_one_run_though_the_api_dies_between_two_tries(cluster: Cluster) -> None:
    body, ids = cluster.body("tool-2", tools=["calculator"]), set()
    for _ in range(3):
        with closing(HTTPConnection(urlsplit(cluster.stack.url).netloc)) as connection:
            headers = {"Content-Type": "application/json", "Idempotency-Key": "once"}
            connection.request("POST", "/v1/runs", json.dumps(body), headers)
            cluster.kill("api")
        cluster.start("api")
        ids.add(cluster.submit("tool-2", tools=["calculator"], key="once"))
    assert len(ids) == 1
    run = cluster.ended(ids.pop())
    assert run.status == "completed"
    assert len(cluster.model_calls(run.id)) == 3
    listed = cluster.http.get("/v1/runs", params={"conversation_id": run.conversation_id}).json()["data"]
    assert [each["id"] for each in listed] == [run.id]


def test_a_watcher_goes_on_where_it_was_when_the_api_dies(cluster: Cluster) -> None:
    run_id = cluster.submit("say-40+rate-20")
    seen: list[int] = []
    with pytest.raises(httpx.TransportError):
        for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events"):
            seen.append(event["id"])
            if len(seen) == 10:
                cluster.kill("api")
    cluster.start("api")
    seen += [event["id"] for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events?after={seen[-1]}")]
    assert seen == list(range(1, cluster.ended(run_id).last_event_id + 1))
