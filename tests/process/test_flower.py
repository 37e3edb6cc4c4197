"""What an operator reads in Flower: which model or tool, for which agent, what failed, and how to look at the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.process.cluster import Cluster
from tests.process.watching import celery_events
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

SUPPORT = {"name": "support"}
WHOLE = [["received", "started", end] for end in ("succeeded", "retried", "failed")]
"""What Flower is told of a task, by the end of it."""


def _event(seen: list[dict[str, Any]], kind: str, task_id: str) -> Callable[[], dict[str, Any]]:
    return lambda: next((each for each in seen if (each["type"], each.get("uuid")) == (kind, task_id)), {})


def _of(seen: list[dict[str, Any]], task_id: str) -> list[str]:
    """What was told of a task, in the order in which it came."""
    return [each["type"].removeprefix("task-") for each in seen if each.get("uuid") == task_id]


def test_of_every_task_flower_is_told_all_once_and_in_order(cluster: Cluster) -> None:
    with celery_events(cluster.broker.url, workers=2) as seen:
        runs = [cluster.submit("tool-2+rate-100", tools=["record"]) for _ in range(10)]
        runs += [cluster.submit("500-1+echo"), cluster.submit("401")]
        for run_id in runs:
            cluster.ended(run_id)
        tried = [e.data for run_id in runs for e in cluster.events(run_id) if e.type == "step.started"]

        def told() -> dict[str, list[str]]:
            # A run from before may end just now: the beginning of its task was told to nobody.
            ids = {each["uuid"] for each in tuple(seen) if each.get("uuid", "").partition(":")[0] in runs}
            return {task_id: _of(seen, task_id) for task_id in ids}

        def all_told() -> bool:
            odd = {task_id: kinds for task_id, kinds in told().items() if kinds not in WHOLE}
            assert not odd, odd
            assert len(told()) >= len(tried), f"{len(told())} of {len(tried)}"
            return True

        # Two model steps and a call for each tool, and a last model step; a try that failed comes again.
        eventually(all_told)
        assert len(tried) == 10 * 5 + 2 + 1


def test_a_worker_that_drains_tells_of_what_it_did_last(cluster: Cluster) -> None:
    with celery_events(cluster.broker.url, workers=2) as seen:
        run_id = cluster.submit("say-8+rate-20")
        cluster.saw(run_id, "message.delta")
        leaving = cluster.terminate("worker")
        eventually(lambda: not leaving.running)
        assert leaving.exit_code == 0
        eventually(lambda: _of(seen, f"{run_id}:1:1") in WHOLE)


def test_a_failed_step_says_what_and_why_without_our_own_code(cluster: Cluster) -> None:
    with celery_events(cluster.broker.url, workers=2) as seen:
        run_id = cluster.submit("401", agent=SUPPORT)
        failed = eventually(_event(seen, "task-failed", f"{run_id}:1:1"))
        received = _event(seen, "task-received", f"{run_id}:1:1")()
    assert received["args"] == "fake/401 for support"
    assert received["kwargs"] == f"palaver show {run_id}"
    assert received["root_id"] is None, "Flower links it, and a run is no task"
    assert failed["exception"].startswith("authentication: The provider does not accept the key. (HTTP 401, code")
    assert "traceback" not in failed
    assert cluster.ended(run_id).status == "failed"


def test_a_retried_step_says_why_without_our_own_code(cluster: Cluster) -> None:
    with celery_events(cluster.broker.url, workers=2) as seen:
        run_id = cluster.submit("500-1+echo")
        retried = eventually(_event(seen, "task-retried", f"{run_id}:1:1"))
    sentence = "provider_error: The provider failed to answer. (HTTP 500, code fake.server_error)"
    assert retried["exception"].startswith(f"{sentence}; again in ")
    assert "traceback" not in retried
    assert cluster.ended(run_id).status == "completed"


def test_a_call_names_its_tool_and_how_the_run_goes_on(cluster: Cluster) -> None:
    with celery_events(cluster.broker.url, workers=2) as seen:
        run_id = cluster.submit("tool-1", tools=["record_idempotent"], agent=SUPPORT)
        assert cluster.ended(run_id).status == "completed"
        received = eventually(
            lambda: next((e for e in seen if e["type"] == "task-received" and e["name"] == "palaver.tool_step"), {})
        )
        succeeded = eventually(_event(seen, "task-succeeded", received["uuid"]))
    assert received["args"] == "record_idempotent for support"
    assert received["uuid"].startswith(f"{run_id}:1:")
    assert succeeded["result"] == "'run is running'"


def test_a_tool_that_failed_is_no_failed_step_and_says_so(cluster: Cluster) -> None:
    with celery_events(cluster.broker.url, workers=2) as seen:
        run_id = cluster.submit("tool-1", tools=["fail"])
        assert cluster.ended(run_id).status == "completed"
        told = "'tool_error, told to the model: run is running'"
        succeeded = eventually(
            lambda: next((e for e in seen if e["type"] == "task-succeeded" and e["result"] == told), {})
        )
    assert succeeded["uuid"].startswith(f"{run_id}:1:")


def test_flower_asks_nobody_who_is_not_there(tmp_path: Path) -> None:
    """It begins before the first worker, and asks that once it is there."""
    processes, environment = {"api": 0, "worker": 0, "tools": 0, "flower": 1}, {"FLOWER_UNAUTHENTICATED_API": "1"}
    with Cluster(tmp_path, processes=processes, environment=environment) as alone:
        (flower,) = alone.children("flower")
        alone.start("worker")

        def queues() -> list[str]:
            # A worker answers each of its questions by itself.
            (worker,) = httpx.get(f"{alone.stack.flower_url}/api/workers", timeout=PATIENCE).json().values()
            return [each["name"] for each in worker["active_queues"]]

        assert "model" in eventually(queues)
        assert "failed" not in flower.output
