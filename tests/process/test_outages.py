"""Redis or the API gone for a while."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import httpx
import pytest

from tests.process.cluster import LEASE, Cluster, stream
from tests.waiting import eventually

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


def test_watching_and_cancelling_work_after_redis_restarted(cluster: Cluster) -> None:
    run_id = cluster.submit("say-400+rate-20")
    seen: list[int] = []

    def watch() -> None:
        for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events"):
            seen.append(event["id"])

    watching = threading.Thread(target=watch)
    watching.start()
    eventually(lambda: len(seen) > 10)
    cluster.kill("redis")
    cluster.start("redis")
    before = cluster.run(run_id).last_event_id
    eventually(lambda: cluster.run(run_id).last_event_id > before + 20)
    with cluster.redis() as server:
        channel = f"palaver:cancel:{cluster.tries(run_id)[-1]}"
        eventually(lambda: dict(server.pubsub_numsub(channel))[channel.encode()], why="the worker hears of no cancel")
    cluster.cancel(run_id)
    run = cluster.ended(run_id)
    assert cluster.outcomes(run_id)[-1] == "disconnected"
    watching.join()
    assert seen == list(range(1, run.last_event_id + 1))


def test_runs_go_on_after_everything_was_killed_at_once(cluster: Cluster) -> None:
    runs = [cluster.submit("tool-3+rate-20", tools=["record_idempotent", "record"]) for _ in range(8)]
    cluster.saw(runs[-1], "step.started")
    names = ("worker", "tools", "api", "redis")
    for name in names:
        cluster.kill(name)
    for name in reversed(names):
        cluster.start(name)
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"


@pytest.mark.parametrize("crash", [True, False], ids=["killed", "paused"])
def test_an_outage_longer_than_a_lease_costs_no_second_model_call(cluster: Cluster, crash: bool) -> None:
    """Nobody could renew a lease; whoever lives does so before any is taken away."""
    cluster.start("worker")
    runs = [cluster.submit(f"say-{int(20 * (LEASE + 3))}+rate-20") for _ in range(8)]
    for run_id in runs:
        cluster.saw(run_id, "message.delta")
    until = time.monotonic() + LEASE + 1
    redis = cluster.stack.kill("redis", 0, signal.SIGKILL if crash else signal.SIGSTOP)
    eventually(lambda: time.monotonic() >= until)
    if crash:
        cluster.start("redis")
    else:
        os.kill(redis, signal.SIGCONT)
    for run_id in runs:
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

    def watch_and_kill() -> None:
        for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events"):
            seen.append(event["id"])
            if len(seen) == 10:
                cluster.kill("api")

    with pytest.raises(httpx.TransportError):
        watch_and_kill()
    cluster.start("api")
    seen += [event["id"] for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events?after={seen[-1]}")]
    assert seen == list(range(1, cluster.ended(run_id).last_event_id + 1))


def test_runs_wait_while_redis_has_no_memory(cluster: Cluster) -> None:
    """The API says so, no worker ends, and once there is room everything goes on."""
    runs = [cluster.submit("tool-3+rate-20", tools=["record", "calculator"]) for _ in range(8)]
    workers = cluster.stack.pids("worker") + cluster.stack.pids("tools")
    cluster.saw(runs[-1], "step.started")
    with cluster.redis() as server:
        server.config_set("maxmemory", "1mb")
        # The first one may come before the API looks at the memory again.
        assert eventually(lambda: refusal(cluster) == "store_nearly_full")
        until = time.monotonic() + 1.5
        eventually(lambda: time.monotonic() >= until)
        server.config_set("maxmemory", "0")
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
    assert cluster.stack.pids("worker") + cluster.stack.pids("tools") == workers


def refusal(cluster: Cluster) -> str:
    """The code of the answer to a submit, if it is 503; the run is taken on otherwise."""
    answer = cluster.http.post("/v1/runs", json=cluster.body("echo"))
    if answer.status_code == 503:
        return str(answer.json()["code"])
    cluster.submitted.append(answer.json()["id"])
    return ""
