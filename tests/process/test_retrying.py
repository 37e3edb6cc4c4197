"""Failures of the provider: retried when that helps, by the due index and not by a worker that waits."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster
from tests.process.watching import celery_events
from tests.waiting import eventually

pytestmark = pytest.mark.process


def test_flower_shows_a_retry_and_no_worker_is_kept_waiting(cluster: Cluster) -> None:
    with celery_events(cluster.broker.url, workers=2) as seen:
        run_id = cluster.submit("429-1-8+echo")
        eventually(lambda: [e for e in seen if e["type"] == "task-retried" and e["uuid"].startswith(run_id)])
        waiting = cluster.run(run_id).waiting
        assert waiting is not None
        assert (waiting.reason, waiting.error_class, waiting.attempt) == ("backoff", "rate_limited", 2)
        eventually(lambda: in_flight(cluster) == 0, within=7, why="a worker waits for the provider")
        assert cluster.ended(run_id).status == "completed"


def in_flight(cluster: Cluster) -> int:
    """Steps that the model worker says it works on."""
    (queue,) = [each for each in cluster.http.get("/v1/queues").json()["data"] if each["name"] == "model"]
    (pid,) = cluster.stack.pids("worker")
    (worker,) = [each for each in queue["workers"] if each["id"].endswith(f"/{pid}")]
    return int(worker["in_flight"])


def test_a_refused_key_fails_at_once(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("401"))
    assert (run.status, run.stop_reason) == ("failed", "error")
    assert run.error is not None
    assert run.error["provider"] is not None
    assert (run.error["class"], run.error["provider"]["http_status"]) == ("authentication", 401)
    assert len(cluster.model_calls(run.id)) == 1


def test_a_stream_that_breaks_off_is_withdrawn_and_made_anew(cluster: Cluster) -> None:
    run_id = cluster.submit("say-30+rate-60+cut-1-20")
    cluster.saw(run_id, "message.discarded", step="1", attempt=1)
    run = cluster.ended(run_id)
    assert run.status == "completed"
    assert run.output == " ".join(f"w{i}" for i in range(1, 31))


@pytest.mark.parametrize("fault", ["hang-1", "stall-1-3"])
def test_a_silent_provider_is_timed_out_and_asked_again(cluster: Cluster, fault: str) -> None:
    run = cluster.ended(cluster.submit(f"hasty/say-5+{fault}"))
    assert run.status == "completed"
    assert [e.data["error"]["class"] for e in cluster.events(run.id) if e.type == "run.retrying"] == ["timeout"]


def test_a_tool_that_asks_for_it_is_tried_again(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-1", tools=["flaky"]))
    assert run.status == "completed"
    assert len(cluster.tool_starts(run.id)) == 2


def test_a_provider_that_is_down_is_asked_until_it_is_back(cluster: Cluster) -> None:
    cluster.kill("fake_provider")
    patient = {"rules": {"connection": {"attempts": 100, "first": 0.2, "max_delay": 0.5}}}
    run_id = cluster.submit("echo", agent={"retry": patient})
    eventually(lambda: cluster.run(run_id).waiting)
    cluster.start("fake_provider")
    assert cluster.ended(run_id).status == "completed"
    retries = [event.data["error"]["class"] for event in cluster.events(run_id) if event.type == "run.retrying"]
    assert set(retries) == {"connection"}


def test_a_run_brings_its_own_policy(cluster: Cluster) -> None:
    retry = {"rules": {"provider_error": {"attempts": 2, "first": 0.01}, "authentication": {"attempts": 3}}}
    run = cluster.ended(cluster.submit("503+echo", agent={"retry": retry}))
    assert run.error is not None
    assert (run.error["class"], len(cluster.model_calls(run.id))) == ("provider_error", 2)
    refused = cluster.ended(cluster.submit("401", agent={"retry": retry}))
    assert len(cluster.model_calls(refused.id)) == 1, "what cannot succeed is not retried, whatever the policy says"


def test_a_run_falls_back_to_its_next_model_and_stays_with_it(cluster: Cluster) -> None:
    rules = {"provider_error": {"attempts": 2, "first": 0.01, "then": "fallback_model"}}
    agent = {"fallbacks": ["hasty/500", "hasty/tool-2"], "retry": {"rules": rules}}
    run = cluster.ended(cluster.submit("503", tools=["calculator"], agent=agent))
    assert (run.status, run.model) == ("completed", "hasty/tool-2")
    assert [call.model for call in cluster.model_calls(run.id)] == ["503"] * 2 + ["500"] * 2 + ["tool-2"] * 3
    answers = [e.data for e in cluster.events(run.id) if e.type == "message.created" and e.data.get("model")]
    assert [data["model"] for data in answers] == ["hasty/tool-2"] * 3
    tries = [e.data["attempt"] for e in cluster.events(run.id) if e.type == "step.started" and e.data["step"] == "1"]
    assert tries == [1, 2, 3, 4, 5]
