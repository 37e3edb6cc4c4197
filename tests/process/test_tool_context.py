"""What tools are told of their calls, and what watchers are told by them, on a stack of real processes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palaver.schemas.actions import digest
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process


def _answers(cluster: Cluster, run_id: str) -> list[Any]:
    """What tools answered, in order."""
    return [json.loads(e.data["message"]["content"]) for e in cluster.events(run_id) if e.type == "tool.finished"]


@pytest.mark.parametrize(("tool", "attempt"), [("tell", 2), ("tell_async", 1), ("tell_inline", 1)])
def test_a_tool_is_told_of_its_call(cluster: Cluster, tool: str, attempt: int) -> None:
    run = cluster.ended(cluster.submit("tool-1", tools=[tool], metadata={"customer": "17"}))
    (call,) = [call for e in cluster.events(run.id) for call in e.data.get("message", {}).get("tool_calls", ())]
    (told,) = _answers(cluster, run.id)
    assert told == {
        "run_id": run.id,
        "conversation_id": run.conversation_id,
        "call_id": call["id"],
        "attempt": attempt,
        "metadata": {"customer": "17"},
        "submitted_by": None,
        "idempotency_key": f"{run.id}:1:{call['id']}:{digest(tool, call['arguments'])[:16]}",
        "in_time": True,
        "traceparent": None,
        "secrets": {},
        "left": None,
    }


@pytest.mark.parametrize("tool", ["tell", "tell_and_crash"])
def test_each_try_of_a_call_has_the_same_key_and_each_call_its_own(cluster: Cluster, tool: str) -> None:
    if tool == "tell_and_crash":
        cluster.expect_traceback("WorkerLostError")
    run = cluster.ended(cluster.submit("tool-2", tools=[tool]))
    assert run.status == "completed"
    used = [start["key"] for start in cluster.tool_starts(run.id)]
    told = _answers(cluster, run.id)
    assert [each["attempt"] for each in told] == [2, 2]
    first, second = (each["idempotency_key"] for each in told)
    assert first != second
    assert used == [first, first, second, second]


def test_watchers_see_the_progress_of_a_tool_that_reports_without_end(cluster: Cluster) -> None:
    """Millions of reports are some events a second, and neither the cancel nor the lease waits for them."""
    run_id = cluster.submit("tool-1", tools=["advance"])
    first = cluster.saw(run_id, "tool.progress").data
    assert (first["tool"], first["attempt"], first["step"]) == ("advance", 1, f"1/{first['call_id']}")
    assert first["text"].endswith(" ? of 10000000 files")
    assert 0 <= first["fraction"] <= 1

    def later() -> bool:
        shown = [e.data["fraction"] for e in cluster.events(run_id) if e.type == "tool.progress"]
        assert shown == sorted(shown)
        return len(shown) >= 3

    eventually(later, why="no more progress")
    assert cluster.cancel(run_id) in (200, 202)
    assert cluster.ended(run_id).status == "cancelled"
    begun = cluster.saw(run_id, "step.started", step=first["step"]).at
    shown = [e.at for e in cluster.events(run_id) if e.type == "tool.progress"]
    assert len(shown) <= (shown[-1] - begun).total_seconds() + 1.1
