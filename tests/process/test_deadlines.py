"""Every run ends: at its deadline, if nothing else ends it."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster
from tests.process.inputs import soon
from tests.waiting import eventually

pytestmark = pytest.mark.process


def late(run_times: object) -> float:
    ended, deadline = run_times.ended_at, run_times.deadline  # type: ignore[attr-defined]
    return float((ended - deadline).total_seconds())


def test_a_model_call_ends_at_the_deadline(cluster: Cluster) -> None:
    run_id = cluster.submit("say-400+rate-20", deadline=soon(1))
    run = cluster.ended(run_id)
    assert (run.status, run.stop_reason) == ("expired", "deadline")
    assert 0 <= late(run.times) < 1
    eventually(lambda: cluster.model_calls(run_id)[0].closed_by_client_at, why="the provider still streams")


def test_a_tool_ends_at_the_deadline(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["record"], deadline=soon(1))
    run = cluster.ended(run_id)
    assert run.status == "expired"
    answer = cluster.saw(run_id, "tool.finished").data
    assert answer["error"]["class"] == "tool_interrupted"


def test_a_back_off_ends_at_the_deadline(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("429-*-60", deadline=soon(1)))
    assert run.status == "expired"
    assert 0 <= late(run.times) < 1


def test_a_run_that_nobody_begins_in_time_expires(cluster: Cluster) -> None:
    first = cluster.submit("say-40+rate-20")
    conversation = cluster.run(first).conversation_id
    second = cluster.submit("echo", conversation_id=conversation, start_by=soon(0.5))
    assert cluster.ended(second).status == "expired"
    assert cluster.model_calls(second) == []
    assert cluster.ended(first).status == "completed"


def test_a_scheduled_run_begins_at_its_time(cluster: Cluster) -> None:
    run_id = cluster.submit("echo", start_after=soon(0.7))
    waiting = cluster.run(run_id).waiting
    assert waiting is not None
    assert waiting.reason == "scheduled"
    run = cluster.ended(run_id)
    assert run.status == "completed"
    assert run.times.started_at is not None
    assert run.times.start_after is not None
    assert run.times.started_at >= run.times.start_after
