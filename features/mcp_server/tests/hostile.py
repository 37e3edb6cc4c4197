"""Bodies of requests with all fields of the MCP server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.unit.mcp_host import MODERN, PREFIX, WITH_TASKS
from tests.unit.waiting_runs import Waiting


def bodies(waits: Waiting) -> Iterator[tuple[str, Any]]:
    """Yield paths and bodies."""

    def calls(name: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": name, "arguments": arguments, "_meta": {"palaver/idempotencyKey": "k"}}
        return {"jsonrpc": "2.0", "id": "1", "method": "tools/call", "params": params}

    answers = [
        {"action_id": waits.actions["approval"], "decision": "deny", "reason": "no"},
        {"action_id": waits.actions["client_tool"], "content": 1, "is_error": True},
        {"action_id": waits.actions["question"], "response": "accept", "content": {"a": "x"}},
        {"action_id": waits.below, "decision": "deny"},
    ]
    yield "/mcp", calls("run_start", agent="support", message="x", idempotency_key="k", wait_s=0)
    yield "/mcp", calls("run_get", run_id=waits.run, after=0, wait_s=0)
    yield "/mcp", calls("run_answer", run_id=waits.run, answers=answers)
    meta = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientCapabilities": WITH_TASKS}
    forms = {
        waits.actions["approval"]: {"action": "accept", "content": {"approve": False, "reason": "no"}},
        waits.actions["question"]: {"action": "accept", "content": {"a": "b"}},
    }
    params = {"taskId": waits.run, "inputResponses": forms, "_meta": meta}
    yield "/mcp", {"jsonrpc": "2.0", "id": "1", "method": "tasks/update", "params": params}
