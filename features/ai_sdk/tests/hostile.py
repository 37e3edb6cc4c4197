"""Bodies of requests with all fields of the AI SDK's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.unit.waiting_runs import GIF, Waiting


def bodies(waits: Waiting) -> Iterator[tuple[str, Any]]:
    """Yield paths and bodies."""
    parts = [{"type": "text", "text": "hi"}, {"type": "file", "url": GIF, "mediaType": "image/gif", "filename": "x"}]
    message = {"id": "m-1", "role": "user", "parts": parts}
    chat = "/ui/agents/support/chat"
    more = {"trigger": "submit-message", "messageId": "m-1", "metadata": {"a": "b"}, "tags": ["a"]}
    yield chat, {"id": "chat", "messages": [message], "on_conflict": "enqueue", **more}
    approval = {"id": waits.actions["approval"], "approved": False, "reason": "no"}
    answers: list[dict[str, Any]] = [
        {"type": "step-start"},
        {"type": "dynamic-tool", "toolCallId": "c1", "state": "approval-responded", "approval": approval},
        {"type": "tool-pick", "toolCallId": "c2", "state": "output-error", "errorText": "closed"},
        {"type": "tool-pick", "toolCallId": "c2", "state": "output-available", "output": {"a": 1}},
        {"type": "data-palaver-question", "id": waits.actions["question"], "data": {"answer": {"response": "decline"}}},
        {"type": "data-palaver-approval", "id": waits.below, "data": {"answer": {"approved": False, "reason": "no"}}},
    ]
    yield chat, {"id": waits.conversation, "messages": [{"id": waits.run, "role": "assistant", "parts": answers}]}
    yield f"{chat}/none/stop", {"runId": "x", "reason": "x"}
