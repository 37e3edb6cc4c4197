"""Bodies of requests with all fields of AG-UI's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.unit.waiting_runs import FUNCTION, GIF, Waiting


def bodies(waits: Waiting) -> Iterator[tuple[str, Any]]:
    """Yield paths and bodies."""
    image = {"type": "image", "source": {"type": "data", "value": GIF.partition(",")[2], "mimeType": "image/gif"}}
    user = {"id": "m", "role": "user", "content": [{"type": "text", "text": "hi"}, image]}
    more = {"context": [{"description": "d", "value": "v"}], "state": {}, "forwardedProps": {"agent": "support"}}
    yield "/ag-ui", {"threadId": "t", "runId": "r", "messages": [user], "tools": [FUNCTION], **more}
    payloads = {
        "approval": {"approved": False, "reason": "no", "arguments": {"a": 1}},
        "question": {"a": "b"},
        "client_tool": {"output": 1, "isError": True},
    }
    resume = [
        {"interruptId": f"{waits.run}:{waits.actions[kind]}", "status": "resolved", "payload": payload}
        for kind, payload in payloads.items()
    ]
    result = {"id": "t", "role": "tool", "toolCallId": f"{waits.run}:1:c2", "content": "x", "error": "e"}
    yield "/ag-ui", {"threadId": waits.conversation, "runId": "r", "messages": [result], "resume": resume}
    yield "/ag-ui/threads/none/cancel", {"reason": "x"}
