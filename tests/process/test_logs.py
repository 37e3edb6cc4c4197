"""What the logs of the processes say: for people, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.process.cluster import Cluster
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

KEY = "a-key-of-a-test-123456"
ROLES = ("api", "worker", "tools", "flower")


@pytest.fixture(scope="module")
def json_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    environment = {"PALAVER_LOG_FORMAT": "json", "PALAVER_API_KEYS": f"ann={KEY}"}
    with Cluster(tmp_path_factory.mktemp("json"), environment=environment, processes={"flower": 1}) as cluster:
        cluster.http.headers["Authorization"] = f"Bearer {KEY}"
        yield cluster


def _log(cluster: Cluster, role: str) -> str:
    return "".join(child.log_path.read_text() for child in cluster.children(role))


def _records(cluster: Cluster, role: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _log(cluster, role).splitlines()]


def test_a_tool_that_raises_is_told_of_once_without_what_it_says(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", tools=["fail"])
    assert cluster.ended(run_id).status == "completed"
    log = eventually(lambda: text if run_id in (text := _log(cluster, "tools")) and " raised " in text else "")
    (told,) = [part for part in log.split("[20") if f" in {run_id}/1/" in part and " raised " in part]
    assert "WARNING" in told
    assert "tool fail raised ValueError in" in told
    assert 'raise ValueError("no such city")' in told, "the line of code"
    assert "ValueError: no such city" not in told
    assert "workers/" not in told


def test_a_run_that_fails_is_a_warning(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("401"))
    line = f"run {run.id} failed at step 1: authentication fake.invalid_api_key"
    assert eventually(lambda: [each for each in _log(cluster, "worker").splitlines() if line in each])[0].count(
        "WARNING"
    )


def test_each_request_is_logged_with_its_id(cluster: Cluster) -> None:
    cluster.http.get("/v1/runs", headers={"X-Request-Id": "find-me-123"})
    eventually(lambda: '"GET /v1/runs HTTP/1.1" 200 OK find-me-123' in _log(cluster, "api"))


def test_json_says_what_a_line_is_about(json_cluster: Cluster) -> None:
    url = json_cluster.stack.url
    assert httpx.get(f"{url}/v1/runs", headers={"X-Request-Id": "find-me-124"}, timeout=PATIENCE).status_code == 401
    run_id = json_cluster.submit("tool-1", tools=["fail"])
    assert json_cluster.ended(run_id).status == "completed"
    failed = json_cluster.ended(json_cluster.submit("401"))

    def found(role: str, **wanted: str) -> dict[str, Any]:
        return next((each for each in _records(json_cluster, role) if wanted.items() <= each.items()), {})

    refused = eventually(lambda: found("api", request="find-me-124"))
    assert refused["logger"] == "palaver.access"
    assert (refused["method"], refused["path"], refused["status"]) == ("GET", "/v1/runs", 401)
    assert "key" not in refused
    json_cluster.http.get("/v1/runs", headers={"X-Request-Id": "find-me-125"})
    taken = eventually(lambda: found("api", request="find-me-125"))
    assert (taken["status"], taken["key"]) == (200, "ann")
    assert 0 < taken["duration_ms"] < 60_000
    warned = eventually(lambda: found("worker", run=failed.id, level="warning"))
    assert (warned["step"], warned["worker"].partition(".")[0]) == ("1", "model")
    raised = eventually(lambda: found("tools", run=run_id, level="warning"))
    assert raised["message"].startswith("tool fail raised ValueError in")
    assert raised["step"].startswith("1/")
    assert raised["worker"].startswith("tools.")
    # Celery's own lines, too.
    assert eventually(lambda: found("worker", run=run_id, logger="celery.app.trace", step="1"))


def test_json_has_no_secrets_and_no_content(json_cluster: Cluster) -> None:
    run_id = json_cluster.submit("tool-1", "canary of an input", tools=["fail"])
    assert json_cluster.ended(run_id).status == "completed"
    for role in ROLES:
        assert _records(json_cluster, role)
        for secret in (KEY, "canary of an input", "ValueError: no such city"):
            assert secret not in _log(json_cluster, role), role


def test_the_last_lines_are_json_too(json_cluster: Cluster) -> None:
    for role in ROLES:
        ending = json_cluster.terminate(role)
        eventually(lambda ending=ending: not ending.running)  # type: ignore[misc]
    assert any("shutdown" in each["message"] for each in _records(json_cluster, "worker"))
    for role in ROLES:
        assert _records(json_cluster, role), role
