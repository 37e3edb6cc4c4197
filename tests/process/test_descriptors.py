"""Processes that may not open one more file or connection: they wait, say so, and go on when they may."""

from __future__ import annotations

from contextlib import ExitStack

import httpx
import pytest

from tests.process.cluster import Cluster
from tests.process.descriptors import starved
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def told(cluster: Cluster) -> None:
    """asyncio and Celery log it with a traceback; so does an event loop that could not be made, as it goes."""
    cluster.expect_traceback("Too many open files")
    cluster.expect_traceback("object has no attribute '_ssock'")


@pytest.mark.chaos
def test_an_api_without_descriptors_answers_on_connections_that_it_has(cluster: Cluster) -> None:
    """Whether it has one to Redis is chance; whatever it took on runs. Takes half a minute: event loops of
    Pythons before June 2026 log 2,048 tracebacks for a connection that they cannot accept (python/cpython#151615)."""
    (pid,) = cluster.stack.pids("api")
    assert cluster.http.get("/healthz").status_code == 200
    with starved(pid):
        with httpx.Client(base_url=cluster.stack.url, trust_env=False, timeout=PATIENCE) as another:
            assert not answers(another)
        assert cluster.http.get("/healthz").status_code == 200
        answered = [cluster.http.post("/v1/runs", json=cluster.body("echo")) for _ in range(4)]
    with httpx.Client(base_url=cluster.stack.url, trust_env=False, timeout=PATIENCE) as another:
        eventually(lambda: answers(another))
    for answer in answered:
        if answer.status_code == 202:
            cluster.submitted.append(answer.json()["id"])
        else:
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
    assert cluster.ended(cluster.submit("echo")).status == "completed"
    assert cluster.stack.pids("api") == [pid]


def answers(client: httpx.Client) -> bool:
    """Whether the API answers on a connection that stays open."""
    try:
        return client.get("/healthz", timeout=1.0).status_code == 200
    except httpx.TransportError:
        return False


def test_a_model_worker_without_descriptors_asks_later(cluster: Cluster) -> None:
    """A new one, as one that has worked has connections to the provider."""
    cluster.kill("worker")
    cluster.start("worker")
    (pid,) = cluster.stack.pids("worker")
    patient = {"retry": {"rules": {"connection": {"attempts": 100}}}}
    with starved(pid):
        runs = [cluster.submit("say-20+rate-20", agent=patient) for _ in range(4)]
        eventually(lambda: all(refused(cluster, run_id) for run_id in runs))
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
    assert cluster.stack.pids("worker") == [pid]


def refused(cluster: Cluster, run_id: str) -> bool:
    """Whether a try of the run found no socket."""
    retries = (event.data for event in cluster.events(run_id) if event.type == "run.retrying")
    return any(data["error"]["code"] == "out_of_sockets" for data in retries)


def test_a_tools_worker_without_descriptors_loses_nothing(cluster: Cluster) -> None:
    """Nor do its children, which have to connect to Redis for the first tool. It goes on afterwards, unless a child had
    to be replaced meanwhile: Celery ends a worker that has no descriptors for that, for its supervisor to start again.
    """
    cluster.kill("tools")
    cluster.start("tools")
    with ExitStack() as all_of_it:
        for each in (*cluster.all_children(), *cluster.stack.pids("tools")):
            all_of_it.enter_context(starved(each))
        runs = [cluster.submit("tool-1", tools=["record"]) for _ in range(4)]
        eventually(lambda: any(told_of_it(cluster, run_id) for run_id in runs))
    eventually(lambda: ended_with_its_supervisor(cluster, runs))
    assert {cluster.run(run_id).status for run_id in runs} == {"completed"}
    # A child that was forked meanwhile keeps the limit that its parent had: no other test must meet it.
    cluster.kill("tools")
    cluster.start("tools")


def ended_with_its_supervisor(cluster: Cluster, runs: list[str]) -> bool:
    """Whether the runs have ended, by a tools worker that is started again whenever it ends."""
    if not cluster.stack.pids("tools"):
        cluster.start("tools")
    return all(cluster.run(run_id).status.terminal for run_id in runs)


def told_of_it(cluster: Cluster, run_id: str) -> bool:
    """Whether the log of the tools worker, or the tool's result, says what is short."""
    said = cluster.new_log("tools") + str([event.data for event in cluster.events(run_id)])
    return "Too many open files" in said
