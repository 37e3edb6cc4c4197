"""A run that failed says why, the same way however it was asked for: requirements R16 to R20, B15 of the checklist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from palaver.schemas.models import Run
from tests.process.aftermath import outcome
from tests.process.cluster import Cluster, stream

pytestmark = pytest.mark.process

ONCE = {
    "retry": {"rules": {name: {"attempts": 1} for name in ("provider_error", "timeout", "rate_limited", "connection")}}
}
FIELDS = {
    "class", "code", "message", "source", "retryable", "recoverable", "step", "attempt", "provider", "user_action",
}  # fmt: skip


def waited_for(cluster: Cluster, body: dict[str, Any]) -> tuple[str, Any]:
    answer = cluster.http.post("/v1/runs", json=body, headers={"Prefer": "wait=20"})
    assert answer.status_code == 200
    return answer.json()["id"], answer.json()["error"]


def streamed(cluster: Cluster, body: dict[str, Any]) -> tuple[str, Any]:
    headers = {"Accept": "text/event-stream"}
    *_, (_, last) = stream(cluster.http, "/v1/runs", method="POST", json=body, headers=headers)
    return last["data"]["run_id"], last["data"]["error"]


def in_the_background(cluster: Cluster, body: dict[str, Any]) -> tuple[str, Any]:
    run = cluster.ended(cluster.post(body))
    return run.id, run.error


WAYS = (waited_for, streamed, in_the_background)


@pytest.mark.parametrize(
    ("model", "error_class", "tools"),
    [
        pytest.param("fake/500", "provider_error", [], id="r16"),
        pytest.param("hasty/hang", "timeout", [], id="r17"),
        pytest.param("limited/429", "rate_limited", [], id="r18"),
        pytest.param("fake/401", "authentication", [], id="r19"),
        pytest.param("fake/tool-1", "internal", ["odd"], id="r20"),
    ],
)
def test_a_failed_run_has_one_error_on_every_path(
    cluster: Cluster, model: str, error_class: str, tools: list[str]
) -> None:
    """R16 to R20, B15. Waited for in the submit, streamed, in the background, with and without a stream from the
    provider: the same object, to be read at once and later."""
    cluster.expect_traceback("RuntimeError: nobody foresaw this")
    ids: list[str] = []
    for whole in (False, True):
        found: list[Mapping[str, Any]] = []
        for way in WAYS:
            run_id, error = way(cluster, cluster.body(model, tools=tools, agent=ONCE | {"stream": not whole}))
            ids.append(run_id)
            found.append(error)
            assert_failed(cluster, run_id, error)
            cluster.forget_cool_downs()
        assert set(found[0]) == FIELDS
        assert found[0]["class"] == error_class
        assert {str(without_request(error)) for error in found} == {str(without_request(found[0]))}
    cluster.submitted[:] = ids
    listed = cluster.http.get("/v1/runs", params={"error_class": error_class, "limit": len(ids)}).json()["data"]
    assert {run["id"] for run in listed} == set(ids)


def assert_failed(cluster: Cluster, run_id: str, error: Mapping[str, Any]) -> None:
    """What is told at once is what is read later, on the run, in its last event, and of the conversation."""
    run = cluster.run(run_id)
    assert (run.status, run.stop_reason, run.error) == ("failed", "error", error)
    finished = cluster.saw(run_id, "run.finished")
    assert finished.data["error"] == error
    assert outcome(cluster, run) == "failed"


def without_request(error: Mapping[str, Any]) -> dict[str, Any]:
    """The provider numbers its answers."""
    provider = error["provider"] and {**error["provider"], "request_id": None}
    return {**error, "provider": provider}


def test_b15_what_the_model_is_told_is_no_error_of_the_run(cluster: Cluster) -> None:
    """Failures of tools and a cancel set none; what a limit stops has none."""
    runs: dict[str, Callable[[Run], bool]] = {
        cluster.submit("tool-1", tools=["fail"]): lambda run: run.status == "completed",
        cluster.submit("tool-2", tools=["record"], agent={"max_steps": 1}): lambda run: run.status == "incomplete",
        cluster.submit("filter"): lambda run: run.stop_reason == "content_filter",
    }
    for run_id, fits in runs.items():
        run = cluster.ended(run_id)
        assert fits(run), run
        assert run.error is None
        assert cluster.saw(run_id, "run.finished").data["error"] is None
