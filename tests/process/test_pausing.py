"""Pause and resume: nothing new begins meanwhile, and afterwards everything goes on exactly where it was."""

from __future__ import annotations

import signal

import pytest

from palaver.schemas.models import Run
from tests.process.cluster import Cluster
from tests.process.phases import in_a_model_call
from tests.waiting import eventually

pytestmark = pytest.mark.process

BACKS_OFF = {"retry": {"rules": {"provider_error": {"first": 1, "max_delay": 1, "jitter": "none"}}}}


def count(cluster: Cluster, run: Run, kind: str) -> int:
    """How many events of this type the run has."""
    return [event.type for event in cluster.events(run.id)].count(kind)


def test_a_model_call_that_is_under_way_finishes_and_its_calls_wait(cluster: Cluster) -> None:
    with in_a_model_call(cluster, "tool-1", tools=["record"]) as run_id:
        run = cluster.pause(run_id)
        assert (run.status, run.pausing) == ("running", True)
    assert cluster.reached(run_id, "paused").pausing is False
    assert cluster.outcomes(run_id) == ["answered"]
    assert cluster.tool_starts(run_id) == []
    cluster.resume(run_id)
    run = cluster.ended(run_id)
    assert run.output == "done: 1 tool results, the last one: recorded"
    assert len(cluster.model_calls(run_id)) == 2
    assert len(cluster.tool_starts(run_id)) == 1


def test_pausing_now_closes_a_model_call_and_resuming_makes_it_again(cluster: Cluster) -> None:
    run_id = cluster.submit("say-20+rate-20")
    cluster.saw(run_id, "message.delta")
    cluster.pause(run_id, now=True)
    run = cluster.reached(run_id, "paused")
    cluster.saw(run_id, "message.discarded", step="1", attempt=1)
    first = eventually(lambda: next(c for c in cluster.model_calls(run_id) if c.closed_by_client_at))
    assert first.outcome == "disconnected"
    assert run.usage.model_calls == 1
    cluster.resume(run_id)
    run = cluster.ended(run_id)
    assert run.output == " ".join(f"w{i}" for i in range(1, 21))
    assert cluster.outcomes(run_id) == ["disconnected", "answered"]
    assert (cluster.model_calls(run_id)[1].digest, run.usage.model_calls) == (first.digest, 2)


@pytest.mark.parametrize("now", [False, True])
def test_a_tool_that_is_under_way_finishes_and_is_not_started_again(cluster: Cluster, now: bool) -> None:
    gate = cluster.gate()
    run_id = cluster.submit("tool-1", gate.text, tools=["record"])
    eventually(lambda: cluster.tool_starts(run_id))
    cluster.pause(run_id, now=now)
    gate.open()
    run = cluster.reached(run_id, "paused")
    assert cluster.saw(run_id, "tool.finished").data["message"]["content"] == "recorded"
    assert run.usage.tool_calls == 1
    assert len(cluster.model_calls(run_id)) == 1
    cluster.resume(run_id)
    assert cluster.ended(run_id).status == "completed"
    assert len(cluster.tool_starts(run_id)) == 1


def test_calls_that_have_not_begun_wait_for_the_end_of_the_pause(cluster: Cluster) -> None:
    """Six calls on four children."""
    gate = cluster.gate()
    run_id = cluster.submit("parallel-6", gate.text, tools=["record"])
    eventually(lambda: len(cluster.tool_starts(run_id)) == 4)
    cluster.pause(run_id)
    gate.open()
    cluster.reached(run_id, "paused")
    assert len(cluster.tool_starts(run_id)) == 4
    cluster.resume(run_id)
    assert cluster.ended(run_id).status == "completed"
    assert len(cluster.tool_starts(run_id)) == 6


def test_resuming_does_not_shorten_a_back_off(cluster: Cluster) -> None:
    run_id = cluster.submit("500-1+echo", agent=BACKS_OFF)
    retrying = cluster.saw(run_id, "run.retrying")
    cluster.pause(run_id)
    run = cluster.resume(run_id)
    assert run.waiting is not None
    assert run.waiting.reason == "backoff"
    cluster.ended(run_id)
    starts = [event.at for event in cluster.events(run_id) if event.type == "step.started"]
    assert (starts[1] - retrying.at).total_seconds() >= 1


def test_a_worker_that_is_killed_before_the_pause_holds(cluster: Cluster) -> None:
    """It had two model calls, one of them to be aborted; they are made again after the pause."""
    runs = [cluster.submit("say-20+rate-20") for _ in range(2)]
    for run_id in runs:
        cluster.saw(run_id, "message.delta")
    cluster.stack.kill("worker", 0, signal.SIGSTOP)
    for run_id, now in zip(runs, (False, True), strict=True):
        assert cluster.pause(run_id, now=now).pausing
    cluster.kill("worker")
    cluster.start("worker")
    for run_id in runs:
        run = cluster.reached(run_id, "paused")
        assert count(cluster, run, "message.discarded") == 1
        assert len(cluster.model_calls(run_id)) == 1
    for run_id in runs:
        cluster.resume(run_id)
    for run_id in runs:
        assert cluster.ended(run_id).output == " ".join(f"w{i}" for i in range(1, 21))
        assert len(cluster.model_calls(run_id)) == 2
