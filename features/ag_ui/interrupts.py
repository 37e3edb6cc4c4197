"""The interrupts of a run, which needs an action: approvals, questions, and calls of the client's tools."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from api.kit.shown_run import OpenCalls

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


class Interrupts:
    """The pending actions of a run, by the ids of actions."""

    def __init__(self, run_id: str, calls: OpenCalls, answers: frozenset[str]) -> None:
        """``answers`` are ids of actions and of calls."""
        self.idle = False
        """True while nothing else of the run is going on."""
        self.answered = not answers
        """True once one of the answers has been taken."""
        self._run_id = run_id
        self._calls = calls
        self._answers = answers
        self._own: dict[str, AgEvent] = {}
        self._below: dict[str, AgEvent] = {}
        self._outputs: dict[str, str] = {}
        """Calls of the client's tools, as clients know them."""

    @property
    def waiting(self) -> bool:
        """True while an action is needed."""
        return bool((self.idle and not self._calls.settled) or self._below)

    def outcome(self) -> AgEvent:
        """Return the outcome of a run that ends because an action is needed."""
        if interrupts := [*self._own.values(), *self._below.values()]:
            return {"type": "interrupt", "interrupts": interrupts}
        return {"type": "success", "pendingToolCallIds": [*self._outputs.values()]}

    def ask(self, step: str, action: Mapping[str, Any]) -> None:
        """Note that a call waits."""
        name = self._calls.name_of(step, action["call_id"])
        if action["type"] != "client_tool":
            self._own[action["id"]] = self._interrupt(action, name)
        elif name is not None:
            self._outputs[action["id"]] = name

    def ask_below(self, data: Mapping[str, Any]) -> None:
        """Note that a call of a run below waits."""
        made = self._interrupt(data["action"], None)
        made["metadata"] |= {"runId": data["child_run_id"], "path": data["path"]}
        self._below[data["action"]["id"]] = made

    def resolve(self, data: Mapping[str, Any]) -> None:
        """Note the decision."""
        self._take_answer(data)
        approved = data["decision"] in ("approve", "edit")
        interrupt = self._own.pop(data["action_id"], None) or {}
        name = interrupt.get("toolCallId") or self._outputs.pop(data["action_id"], None)
        if approved or not (self._own or self._outputs):
            self.idle = False
        if name is not None and not approved:
            self._calls.settle(name)

    def resolve_below(self, data: Mapping[str, Any]) -> None:
        """Note that a call of a run below waits no more."""
        self._take_answer(data)
        self._below.pop(data["action_id"], None)

    def forget(self) -> None:
        """Note that the run is being cancelled: no action is needed."""
        self.idle = False
        self._below = {}

    def _take_answer(self, data: Mapping[str, Any]) -> None:
        self.answered = self.answered or not self._answers.isdisjoint((data["action_id"], data["call_id"]))

    def _interrupt(self, action: Mapping[str, Any], name: str | None) -> AgEvent:
        approval, question = action["type"] == "approval", action.get("question")
        message, schema = f"{action['tool']} {action['arguments']}", dict(ANSWER if approval else OUTPUT)
        if question:
            at = f" {question['url']}" if question["url"] else ""
            message, schema = f"{question['asker']}: {question['message']}{at}", question["form"] or {"type": "object"}
        made: AgEvent = {
            "id": interrupt_id(self._run_id, action["id"]),
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
        return made if name is None else made | {"toolCallId": name}
