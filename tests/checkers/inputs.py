"""What must be true of a run that somebody paused, cancelled, or decided on the calls of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaver.schemas.models import Run
from palaver.store.reading.events import StoredEvent
from tests.checkers.evidence import Evidence

STARTS = {"approve", "edit"}
TOLD = {
    "deny": ("tool_denied",),
    "expired": ("tool_denied", "tool_timeout"),
    "output": ("", "tool_error"),
    "cancelled": ("tool_denied", "tool_interrupted"),
}
"""The error class of the result that a resolved call has, empty for none; one that is to start may have any."""


def inputs_hold(evidence: Evidence) -> None:
    """I11: each action was resolved once or by the run's end, and no call began before; nothing began in a pause or
    behind a cancel."""
    for run, events in evidence.runs:
        _check(run, events)


def _check(run: Run, events: Sequence[StoredEvent]) -> None:
    assert not run.pending_actions, run
    assert not run.pausing, run
    waiting: dict[str, dict[str, Any]] = {}
    resolved: dict[str, dict[str, Any]] = {}
    held, paused = "", False
    for event in events:
        data = event.data
        where = f"{run.id}: {event.seq} {event.type} {data}"
        match event.type:
            case "action.required":
                assert data["action"]["call_id"] not in waiting, where
                waiting[data["action"]["call_id"]] = data["action"]
            case "action.resolved":
                action = waiting.pop(data["call_id"], None)
                assert action, f"resolved before it was required, or twice: {where}"
                assert data["action_id"] == action["id"], where
                asked = action["type"] == "question"
                assert asked or data["decision"] != "answer", where
                if not asked or data["decision"] == "cancelled":
                    # A call that asked something goes on, whatever came of that.
                    resolved[data["call_id"]] = data
            case "run.requires_action":
                assert sorted(data["pending_actions"]) == sorted(action["id"] for action in waiting.values()), where
            case "tool.finished":
                call_id, told = data["message"]["call_id"], (data.get("error") or {}).get("class", "")
                how = resolved.pop(call_id, None)
                if how and how["decision"] in TOLD:
                    assert told in TOLD[how["decision"]], where
                if how and how["decision"] == "edit" and not told:
                    assert data["message"]["content"].startswith("[The user changed the arguments"), where
                    assert how["arguments"] in data["message"]["content"], where
                waiting.pop(call_id, None)
            case "run.pausing" | "run.cancelling":
                held = event.type
            case "run.paused":
                assert held == "run.pausing", where
                paused = True
            case "run.resumed":
                assert held == "run.pausing", where
                held, paused = "", False
            case "step.started":
                assert not held, f"begun in spite of {held}: {where}"
                call_id = data["step"].partition("/")[2]
                assert call_id not in waiting, f"nobody had decided: {where}"
                assert call_id not in resolved or resolved[call_id]["decision"] in STARTS, where
            case "message.delta":
                assert not paused, where
    assert not waiting, f"{run.id} ended with actions: {waiting}"
