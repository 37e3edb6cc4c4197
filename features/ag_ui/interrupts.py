"""The interrupts of a run, which needs an action: approvals, questions, and calls of the client's tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from .frames import AgEvent, interrupt_id

ANSWER: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "type": "object",
        "required": ["approved"],
        "properties": {
            "approved": {"type": "boolean"},
            "reason": {"type": "string", "description": "With a refusal: the reason, for the model."},
            "arguments": {"type": "object", "description": "Other arguments for the call."},
        },
    }
)
"""The schema of the payload that answers an approval."""
OUTPUT: Final[Mapping[str, Any]] = MappingProxyType(
    {"type": "object", "required": ["output"], "properties": {"output": {}, "isError": {"type": "boolean"}}}
)
"""The same of a client's output."""


def outcome_of(
    run_id: str, asked: Iterable[tuple[Mapping[str, Any], str]], below: Iterable[Mapping[str, Any]]
) -> AgEvent:
    """Return the outcome of a run that ends because an action is needed. ``asked`` are the actions of its calls, which
    clients know by these names; ``below`` the events about calls of runs below."""
    interrupts, outputs = list[AgEvent](), list[str]()
    for action, name in asked:
        if action["type"] == "client_tool":
            outputs.append(name)
        else:
            interrupts.append({**_interrupt(run_id, action), "toolCallId": name})
    for data in below:
        made = _interrupt(run_id, data["action"])
        made["metadata"] |= {"runId": data["child_run_id"], "path": data["path"]}
        interrupts.append(made)
    if interrupts:
        return {"type": "interrupt", "interrupts": interrupts}
    return {"type": "success", "pendingToolCallIds": outputs}


def _interrupt(run_id: str, action: Mapping[str, Any]) -> AgEvent:
    approval, question = action["type"] == "approval", action.get("question")
    message, schema = f"{action['tool']} {action['arguments']}", dict(ANSWER if approval else OUTPUT)
    if question:
        at = f" {question['url']}" if question["url"] else ""
        message, schema = f"{question['asker']}: {question['message']}{at}", question["form"] or {"type": "object"}
    return {
        "id": interrupt_id(run_id, action["id"]),
        "reason": "tool_call" if approval else "input_required",
        "message": message,
        "responseSchema": schema,
        "expiresAt": action["expires_at"],
        "metadata": {
            "tool": action["tool"],
            "arguments": action["arguments"],
            "digest": action["digest"],
            "secondPerson": action["second_person"],
        },
    }
