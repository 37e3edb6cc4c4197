"""AG-UI with real workers that die: the page has what the log has, and comes back by sending its request again."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from features.ag_ui.tests.unit.ag_ui_page import check, read, shown
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process


class Thread:
    """A page's thread."""

    def __init__(self, cluster: Cluster, name: str, agent: str) -> None:
        self._cluster, self._name, self._agent = cluster, name, agent
        self.messages: list[dict[str, Any]] = []

    def request(self, run: str, **more: Any) -> dict[str, Any]:
        return {"threadId": self._name, "runId": run, "messages": self.messages, **more}

    def ask(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Hear a whole run."""
        answer = self._cluster.http.post(f"/ag-ui/agents/{self._agent}", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        events = read(answer.text)
        check(events, body)
        self.messages = shown(self.messages, events)
        return events

    def leave_after(self, body: dict[str, Any], deltas: int) -> str:
        """Hear so many deltas, and lose the connection; the id of the run."""
        url = f"{self._cluster.http.base_url}/ag-ui/agents/{self._agent}"
        heard = 0
        with httpx.stream("POST", url, json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                heard += '"TEXT_MESSAGE_CONTENT"' in line
                if heard == deltas:
                    break
        (run,) = [each for each in self._cluster.http.get("/v1/runs").json()["data"] if each["stop_reason"] is None]
        self._cluster.submitted.append(run["id"])
        return str(run["id"])


def keep(cluster: Cluster, name: str, **agent: Any) -> None:
    answer = cluster.http.put(f"/v1/agents/{name}", json=agent)
    assert answer.status_code in (200, 201), answer.text


def test_a_page_that_comes_back_has_what_the_log_has_though_the_worker_died(cluster: Cluster) -> None:
    keep(cluster, "slow", model="fake/say-60+rate-20")
    page = Thread(cluster, "thread-1", "slow")
    page.messages = [{"id": "u", "role": "user", "content": "tell me"}]
    body = page.request("run-1")
    run_id = page.leave_after(body, 5)
    cluster.kill("worker")
    cluster.start("worker")
    events = page.ask(body)
    assert events[1]["type"] == "MESSAGES_SNAPSHOT"
    run = cluster.ended(run_id)
    assert [(each["role"], each["content"]) for each in page.messages] == [
        ("user", "tell me"), ("assistant", run.output)
    ]  # fmt: skip
    assert events[-1]["result"] == {"runId": run_id, "stopReason": "end_turn"}
