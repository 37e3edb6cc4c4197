"""Runs over the Model Context Protocol, with real workers: started, followed, answered, cancelled, and as tasks."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process

VERSION: Final = "2026-07-28"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/tasks": {}},
        "elicitation": {},
    },
}
MESSAGE: Final = '[[args {"seconds": 0}]]'


def legacy(cluster: Cluster, tool: str, **arguments: Any) -> dict[str, Any]:
    """The state that a tool answers an older host with."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    answer = cluster.http.post("/mcp", json=body, headers={"mcp-protocol-version": "2025-11-25"})
    result = answer.json()["result"]
    assert not result["isError"], result
    state: dict[str, Any] = result["structuredContent"]
    return state


def modern(cluster: Cluster, method: str, named: str, **params: Any) -> dict[str, Any]:
    """The result of a request of a host that knows tasks."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    headers = {"mcp-protocol-version": VERSION, "mcp-method": method, "mcp-name": named}
    answer = cluster.http.post("/mcp", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result


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


def test_a_run_that_works_is_cancelled_while_somebody_waits(cluster: Cluster) -> None:
    publish(cluster, "hanging", "hang")
    state = legacy(cluster, "run_start", agent="hanging", message="hello")
    assert state["status"] == "working"
    cluster.reached(state["run_id"], "running")
    assert legacy(cluster, "run_cancel", run_id=state["run_id"])["status"] in ("working", "cancelled")
    assert legacy(cluster, "run_get", run_id=state["run_id"], wait_s=25)["status"] == "cancelled"


def test_a_run_is_a_task_for_who_knows_them(cluster: Cluster) -> None:
    publish(cluster, "sender", "tool-1", tools=["send"])
    made = modern(cluster, "tools/call", "agent_sender", name="agent_sender", arguments={"message": MESSAGE})
    assert (made["resultType"], made["status"]) == ("task", "working")
    task_id = made["taskId"]

    def reached(status: str) -> dict[str, Any] | None:
        task = modern(cluster, "tasks/get", task_id, taskId=task_id)
        return task if task["status"] == status else None

    task = eventually(lambda: reached("input_required"))
    assert task is not None
    (key,) = task["inputRequests"]
    responses = {key: {"action": "accept", "content": {"approve": True}}}
    modern(cluster, "tasks/update", task_id, taskId=task_id, inputResponses=responses)
    task = eventually(lambda: reached("completed"))
    assert task is not None
    assert task["result"]["structuredContent"]["result"] == "done: 1 tool results, the last one: sent after 0 s"
    other = modern(cluster, "tools/call", "agent_sender", name="agent_sender", arguments={"message": MESSAGE})["taskId"]
    modern(cluster, "tasks/cancel", other, taskId=other)
    task_id = other
    assert eventually(lambda: reached("cancelled"))
