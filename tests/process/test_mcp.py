"""A run over the Model Context Protocol, with real workers: started, followed, answered once, and over."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

MESSAGE: Final = '[[args {"seconds": 0}]]'


def legacy(cluster: Cluster, tool: str, **arguments: Any) -> dict[str, Any]:
    """The state that a tool answers an older host with."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    answer = cluster.http.post("/mcp", json=body, headers={"mcp-protocol-version": "2025-11-25"})
    result = answer.json()["result"]
    assert not result["isError"], result
    state: dict[str, Any] = result["structuredContent"]
    return state


def publish(cluster: Cluster, name: str, model: str, **agent: Any) -> None:
    """Keep an agent on the server."""
    assert cluster.http.put(f"/v1/agents/{name}", json={"model": f"fake/{model}", **agent}).status_code in (200, 201)


def test_a_run_is_followed_through_its_approval_to_its_end(cluster: Cluster) -> None:
    publish(cluster, "sender", "tool-1", tools=["send"])
    state = legacy(cluster, "agent_sender", message=MESSAGE, wait_s=25)
    assert state["status"] == "input_required"
    (action,) = state["actions"]
    assert (action["kind"], action["tool"], action["arguments"]) == ("approval", "send", {"seconds": 0})
    assert cluster.tool_starts(state["run_id"]) == []
    answers = [{"action_id": action["action_id"], "decision": "approve"}]
    for _ in range(2):
        legacy(cluster, "run_answer", run_id=state["run_id"], answers=answers)
    state = legacy(cluster, "run_get", run_id=state["run_id"], wait_s=25)
    assert (state["status"], state["result"]) == ("completed", "done: 1 tool results, the last one: sent after 0 s")
    assert len(cluster.tool_starts(state["run_id"])) == 1
    events = legacy(cluster, "run_get", run_id=state["run_id"], after=0)["events"]
    assert events[-1]["type"] == "run.finished"
