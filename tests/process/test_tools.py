"""Tools that overrun, raise, or take their process along."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palaver.store.reading.events import StoredEvent
from tests.process.cluster import LEASE, Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process


def answers(cluster: Cluster, run_id: str) -> list[StoredEvent]:
    return [event for event in cluster.events(run_id) if event.type == "tool.finished"]


def told(cluster: Cluster, run_id: str) -> list[str]:
    """The error class of each result, empty for none."""
    return [(event.data.get("error") or {}).get("class", "") for event in answers(cluster, run_id)]


@pytest.mark.parametrize("name", ["leave", "leave_async", "give_up_async"])
def test_a_tool_that_ends_the_program_only_fails(cluster: Cluster, name: str) -> None:
    run = cluster.ended(cluster.submit("tool-2", tools=[name]))
    assert run.status == "completed"
    assert told(cluster, run.id) == ["tool_error"] * 2


def test_an_inline_tool_that_ends_the_program_only_fails(cluster: Cluster) -> None:
    (before,) = cluster.stack.pids("worker")
    run = cluster.ended(cluster.submit("tool-1", tools=["leave_inline"]))
    assert told(cluster, run.id) == ["tool_error"]
    assert cluster.stack.pids("worker") == [before]


def test_a_tool_that_overruns_is_interrupted(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["nap"]))
    assert (run.status, told(cluster, run.id)) == ("completed", ["tool_timeout"])
    (start,) = cluster.tool_starts(run.id)
    assert start["pid"] in cluster.children_of("tools")


def test_a_tool_that_was_interrupted_leaves_no_error_in_the_log(cluster: Cluster) -> None:
    """The checks behind every test read the logs; asyncio reports an exception there that is dropped unseen."""
    overran = cluster.ended(cluster.submit("tool-1", tools=["overrun"]))
    collected = cluster.ended(cluster.submit("parallel-4", tools=["collect_garbage"]))
    pids = [{start["pid"] for start in cluster.tool_starts(run.id)} for run in (overran, collected)]
    assert pids[0] <= pids[1], "garbage was collected elsewhere"


def test_a_child_never_looks_through_what_was_imported_before_it(cluster: Cluster) -> None:
    """It would get a copy of all that it shares with its parent."""
    run_id = cluster.submit("tool-1", tools=["looked_through"])
    assert cluster.ended(run_id).status == "completed"
    looked_through, never = json.loads(cluster.saw(run_id, "tool.finished").data["message"]["content"])
    assert looked_through < never


def test_a_tool_may_hold_the_interpreter_for_as_long_as_it_has_time(cluster: Cluster) -> None:
    """Longer than a lease, as an expression that matches badly does."""
    run = cluster.ended(cluster.submit("tool-1", f'[[args {{"seconds": {LEASE + 2:.0f}}}]]', tools=["frozen_in_time"]))
    assert (run.status, told(cluster, run.id)) == ("completed", [""])
    assert len(cluster.tool_starts(run.id)) == 1


def test_a_tool_that_holds_the_interpreter_does_not_outlive_a_cancel_for_long(cluster: Cluster) -> None:
    cluster.expect_traceback("WorkerLostError")
    run_id = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["frozen_in_time"])
    (start,) = eventually(lambda: cluster.tool_starts(run_id))
    assert cluster.cancel(run_id) in (200, 202)
    assert cluster.ended(run_id).status == "cancelled"
    eventually(lambda: start["pid"] not in cluster.children_of("tools"), why="the process lives on")


def test_a_poison_call_fails_its_run_after_three_losses(cluster: Cluster) -> None:
    cluster.expect_traceback("WorkerLostError")
    run = cluster.ended(cluster.submit("tool-1", tools=["crash_idempotent"]))
    assert run.status == "failed"
    steps = [event for event in cluster.events(run.id) if "/" in (event.data.get("step") or "")]
    begun, lost = ([event.at for event in steps if event.type == f"step.{what}"] for what in ("started", "lost"))
    assert [(died - began).total_seconds() < LEASE for began, died in zip(begun, lost, strict=True)] == [True] * 3
    assert run.error is not None
    assert (run.error["class"], run.error["retryable"]) == ("worker_lost", True)
    assert len(cluster.tool_starts(run.id)) == 3


def test_workers_tell_which_tools_they_have(cluster: Cluster) -> None:
    def listed() -> dict[str, Any]:
        return {each["name"]: each for each in cluster.http.get("/v1/tools").json()["data"]}

    reported = eventually(lambda: (found := listed()).get("calculator", {}).get("workers") and found)
    assert reported["calculator"]["parameters"]["required"] == ["expression"]
    assert (reported["calculator"]["inline"], reported["record"]["idempotent"]) == (True, False)

    def working() -> set[str]:
        queues = cluster.http.get("/v1/queues").json()["data"]
        return {worker["id"] for queue in queues for worker in queue["workers"]}

    # One that the test before has killed may be forgotten between two answers.
    eventually(lambda: (named := set(listed()["record"]["workers"])) and named <= working())
