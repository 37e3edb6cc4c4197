"""What a run is doing is seen on the run while it does it, by name."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process


def _steps(cluster: Cluster, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.http.get(f"/v1/runs/{run_id}").json()["current_steps"]
    return found


def _step(cluster: Cluster, run_id: str, **wanted: Any) -> dict[str, Any]:
    """The run's one step, once it is so."""

    def look() -> dict[str, Any]:
        (step,) = _steps(cluster, run_id) or [{}]
        return step if wanted.items() <= step.items() and (step["progress"] or step["kind"] == "tool") else {}

    return eventually(look)


def _time(text: str) -> datetime:
    """A moment. Its text is no measure: a whole second has no fraction."""
    return datetime.fromisoformat(text)


def _cancel(cluster: Cluster, run_id: str) -> None:
    assert cluster.http.post(f"/v1/runs/{run_id}/cancel").status_code in (200, 202)
    assert cluster.ended(run_id).status == "cancelled"
    assert _steps(cluster, run_id) == []


def test_a_model_that_hangs_is_named_and_when_it_is_given_up(cluster: Cluster) -> None:
    run_id = cluster.submit("hang")
    step = _step(cluster, run_id, state="leased")
    assert (step["kind"], step["name"], step["step"], step["attempt"]) == ("model", "fake/hang", "1", 1)
    assert step["worker"].startswith("model.")
    assert step["progress"]["bytes"] == 0
    assert _time(step["since"]) <= _time(step["progress"]["at"]) < _time(step["gives_up_at"])
    (listed,) = cluster.http.get("/v1/runs", params={"limit": 1}).json()["data"]
    assert listed["current_steps"][0]["name"] == "fake/hang"
    _cancel(cluster, run_id)


def test_a_stream_says_how_far_it_is(cluster: Cluster) -> None:
    run_id = cluster.submit("say-2000+rate-20")

    def look() -> dict[str, Any]:
        (step,) = _steps(cluster, run_id) or [{"progress": None}]
        return step if step["progress"] and step["progress"]["characters"] else {}

    step = eventually(look)
    assert step["progress"]["bytes"] > step["progress"]["characters"]
    _cancel(cluster, run_id)


def test_a_step_that_is_tried_again_says_why(cluster: Cluster) -> None:
    run_id = cluster.submit("500-1+hang")
    step = _step(cluster, run_id, state="leased", attempt=2)
    assert (step["last_failure"]["error_class"], step["max_attempts"]) == ("provider_error", 5)
    assert "HTTP 500" in step["last_failure"]["message"]
    _cancel(cluster, run_id)


def test_a_tool_that_hangs_is_named_and_when_it_is_given_up(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", '[[args {"seconds": 60}]]', tools=["record_idempotent"])
    step = _step(cluster, run_id, kind="tool", state="leased")
    assert step["name"] == "record_idempotent"
    assert step["worker"].startswith("tools.")
    assert _time(step["since"]) < _time(step["gives_up_at"])
    _cancel(cluster, run_id)
