"""A provider that asks for fewer requests, or has limits: its runs wait, hold nothing and say why; others go on."""

from __future__ import annotations

import time
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from palaver.schemas.models import Run, Waiting
from tests.process.cluster import Cluster
from tests.process.refusing_provider import RefusingProvider
from tests.process.watching import celery_events
from tests.waiting import eventually

pytestmark = pytest.mark.process

CROWD = 100
RETRY_AFTER = 12
ON_THE_WIRE = 0.25
"""Seconds after the refusal in which a call that had begun may still arrive."""


def test_a_crowd_that_was_refused_waits_and_comes_back_one_by_one(cluster: Cluster) -> None:
    cluster.start("worker")
    cluster.start("worker")
    provider = RefusingProvider(cluster.stack.model_url, CROWD, RETRY_AFTER)
    with provider.listening(cluster.busy_port), celery_events(cluster.broker.url, workers=4) as seen:
        at_once = (datetime.now(UTC) + timedelta(seconds=4)).isoformat()
        crowd = [cluster.submit("busy/echo", start_after=at_once) for _ in range(CROWD)]
        eventually(lambda: provider.refused_at, why="all of the crowd asks at once")
        # Until a worker has noted it, others may begin a call.
        eventually(lambda: _busy(cluster.http.get("/v1/queues").json())["cooling_until"])
        late = [cluster.submit("busy/echo") for _ in range(10)]
        for run_id in late:
            waiting = eventually(partial(_waiting, cluster, run_id), every=0.01)
            assert waiting is not None
            assert (waiting.reason, waiting.code) == ("provider_cooldown", "cooldown")
            assert waiting.until is not None
        others = [cluster.submit("fake/tool-1+rate-200", tools=["calculator"]) for _ in range(10)]
        assert {cluster.ended(run_id).status for run_id in others} == {"completed"}
        waits = [event for run_id in others for event in cluster.events(run_id) if event.type == "run.waiting"]
        assert waits == [], "the other provider's runs had to wait"
        queues = eventually(lambda: _idle(cluster))
        assert queues is not None
        assert time.monotonic() < provider.open_at
        busy = _busy(queues)
        assert busy["cooling_until"] is not None
        assert busy["waiting"] == CROWD + len(late)
        ended = [cluster.ended(run_id) for run_id in (*crowd, *late)]
    assert {run.status for run in ended} == {"completed"}
    assert provider.refused_at is not None
    after = [at for at in provider.asked_at if at > provider.refused_at + ON_THE_WIRE]
    assert not [at for at in after if at < provider.open_at], "calls during the cool-down"
    assert provider.passed == CROWD + len(late)
    assert len(provider.asked_at) - CROWD - provider.passed <= CROWD * 0.1, "extra calls"
    _gradually([at - after[0] for at in after])
    assert {_attempts(cluster, run) for run in ended[:CROWD]} == {2}
    assert {_attempts(cluster, run) for run in ended[CROWD:]} == {1}
    # Who was refused is tried again; who only waits is no row of RETRY.
    assert not [e for e in seen if e["type"] == "task-retried" and "provider_cooldown" in e["exception"]]
    assert [e for e in seen if e["type"] == "task-succeeded" and "provider_cooldown" in e["result"]]


def test_the_other_models_of_a_provider_go_on(cluster: Cluster) -> None:
    # Each has its own refusal: they come back one behind the other, every three seconds.
    refused = [cluster.submit("fake/429-1-3+echo") for _ in range(5)]
    for run_id in refused[:1]:
        cluster.saw(run_id, "run.retrying")
    other = cluster.submit("fake/echo")
    assert cluster.ended(other).status == "completed"
    assert all(cluster.run(run_id).status == "running" for run_id in refused), "the other model had to wait"
    assert {cluster.ended(run_id).status for run_id in refused} == {"completed"}


def _waiting(cluster: Cluster, run_id: str) -> Waiting | None:
    return cluster.run(run_id).waiting


def _busy(queues: Any) -> Any:
    """What is known of the provider."""
    return next(each for each in queues["providers"] if each["name"] == "busy")


def _idle(cluster: Cluster) -> Any:
    """The queues, once no model worker holds a step."""
    queues = cluster.http.get("/v1/queues").json()
    model = next(each for each in queues["data"] if each["name"] == "model")
    return queues if model["running"] == 0 and len(model["workers"]) == 3 else None


def _gradually(begun: list[float]) -> None:
    """Ten in the first second, or twice as many where the first one was late, and never a crowd at one instant."""
    assert bisect_left(begun, 1.0) <= 20
    crowds = [bisect_left(begun, at + 0.1) - i for i, at in enumerate(begun)]
    assert max(crowds) <= 40, f"{max(crowds)} calls within 0.1 s"


def _attempts(cluster: Cluster, run: Run) -> int:
    return max(int(e.data["attempt"]) for e in cluster.events(run.id) if e.type == "step.started")


def test_no_more_calls_than_allowed_are_in_flight(cluster: Cluster) -> None:
    cluster.start("worker")
    runs = [cluster.submit("narrow/ttft-500+echo") for _ in range(12)]
    waiting = eventually(lambda: cluster.run(runs[-1]).waiting, every=0.01)
    assert waiting is not None
    assert (waiting.reason, waiting.code) == ("provider_cooldown", "max_in_flight")
    assert {cluster.ended(run_id).status for run_id in runs} == {"completed"}
    calls = [call for run_id in runs for call in cluster.model_calls(run_id)]
    assert len(calls) == 12
    for call in calls:
        assert sum(other.at <= call.at < (other.ended_at or 0) for other in calls) <= 2


def test_the_places_of_a_dead_worker_come_free(cluster: Cluster) -> None:
    holders = [cluster.submit("narrow/ttft-60000+echo") for _ in range(2)]
    eventually(lambda: all(cluster.model_calls(run_id) for run_id in holders))
    waits = cluster.submit("narrow/echo")
    eventually(lambda: cluster.run(waits).waiting)
    cluster.kill("worker")
    for run_id in holders:
        cluster.cancel(run_id)
    cluster.start("worker")
    assert cluster.ended(waits).status == "completed"
