"""Runs that repeat themselves: the model is told, then the run ends and says why."""

from __future__ import annotations

import pytest

from palaver.errors import ErrorObject
from palaver.schemas.models import Run
from palaver.store.reading.events import StoredEvent
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

SAME = '[[args {"expression": "1 + 1"}]]'
FAILS = '[[args {"expression": "1 / 0"}]]'


def nudges(cluster: Cluster, run_id: str) -> list[StoredEvent]:
    return [event for event in cluster.events(run_id) if event.data.get("nudge")]


def error(run: Run) -> ErrorObject:
    assert (run.status, run.stop_reason) == ("failed", "stuck")
    assert run.error is not None
    assert run.error["class"] == "stuck"
    assert (run.error["user_action"], run.error["recoverable"], run.error["source"]) == ("fix_input", False, "engine")
    return run.error


def test_the_same_call_with_the_same_error_after_a_nudge(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-50", tools=["fail"]))
    found = error(run)
    assert found["code"] == "same_error"
    assert "fail failed 4 times" in found["message"]
    (nudge,) = nudges(cluster, run.id)
    assert nudge.data["message"]["role"] == "user"
    assert "fail failed 3 times" in nudge.data["message"]["content"]
    calls = cluster.model_calls(run.id)
    assert [call.last_user.startswith("[Automatic note] fail") for call in calls] == [False, False, False, True]


def test_a_nudge_is_said_once_whatever_happens_to_the_call_it_is_said_with(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-3+503-1@1", FAILS, tools=["calculator"]))
    assert run.status == "completed"
    assert len(nudges(cluster, run.id)) == 1
    told = [call for call in cluster.finished_calls(run.id) if call.last_user.startswith("[Automatic note]")]
    assert [call.status for call in told] == [503, 200, 200, 200, 200]
    assert {call.turn for call in told} == {2}


def test_thresholds_are_the_agents(cluster: Cluster) -> None:
    off = {"stuck": None}
    assert cluster.ended(cluster.submit("tool-6", SAME, tools=["calculator"], agent=off)).status == "completed"
    two = {"stuck": {"same_result": 2}}
    run = cluster.ended(cluster.submit("tool-50", SAME, tools=["calculator"], agent=two))
    assert error(run)["code"] == "same_result"
    assert run.usage.model_calls == 2


def test_the_conversation_of_a_stuck_run_goes_on(cluster: Cluster) -> None:
    stuck = cluster.ended(cluster.submit("tool-50", SAME, tools=["calculator"]))
    error(stuck)
    run = cluster.ended(cluster.submit("tool-3", SAME, tools=["calculator"], conversation_id=stuck.conversation_id))
    assert run.status == "completed"
