"""A log in which everything happens that a client is told of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson

from palaver.errors import FACTS, ErrorClass
from palaver.events import complete
from palaver.operations import LogEntry
from palaver.schemas.actions import ClientTool
from palaver.schemas.opaque import Opaque

CONVERSATION: Final = UUID("0f0e0d0c-0b0a-4908-8706-050403020100")
BEGAN: Final = datetime(2026, 1, 2, 3, 4, 5, 600_000, UTC)


def error(error_class: ErrorClass, message: str = "It failed.") -> dict[str, Any]:
    """A failure on the wire."""
    facts = FACTS[error_class]
    return {
        "class": error_class.value, "code": "some_code", "message": message, "source": facts.source,
        "retryable": facts.retryable, "recoverable": facts.recoverable, "step": "1", "attempt": 1, "provider": None,
        "user_action": facts.user_action,
    }  # fmt: skip


def entry(position: int, kind: str, *, thoughts: str = "", **data: Any) -> LogEntry:
    """An entry of the log."""
    payload = orjson.dumps(complete(kind, data))
    opaque = Opaque("chat_completions/fake/x", orjson.dumps({"reasoning": thoughts}).decode()) if thoughts else None
    at = BEGAN + timedelta(milliseconds=position)
    return LogEntry("run_00" + "0" * 26, position, at, kind, payload, position, opaque=opaque)


def said(position: int, role: str, content: Any = "", **data: Any) -> LogEntry:
    """A message without calls."""
    return entry(position, "message.created", message={"role": role, "content": content}, **data)


def called(position: int, *calls: tuple[str, str, str], step: str = "1", text: str = "", **data: Any) -> LogEntry:
    """An answer with calls: the id, the tool and the arguments of each."""
    listed = [{"id": id, "name": name, "arguments": arguments} for id, name, arguments in calls]
    message = {"role": "assistant", "content": text, "tool_calls": listed}
    return entry(position, "message.created", message=message, step=step, thoughts="So that is how it is.", **data)


SHOW: Final = ClientTool(
    name="show",
    description="Show something.",
    parameters={"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    acknowledgement="Shown.",
)


def answered(
    position: int, call_id: str, tool: str, text: str, error: dict[str, Any] | None = None, step: str = "1"
) -> LogEntry:
    """The result of a call."""
    message = {"role": "tool", "content": text, "call_id": call_id, "name": tool, "is_error": error is not None}
    return entry(position, "tool.finished", message=message, step=f"{step}/{call_id}", error=error)


IMAGE: Final = {"type": "image", "url": "data:image/png;base64,AAAA"}
LOG: Final = (
    entry(1, "run.created", conversation_id="conv_00" + "0" * 26),
    said(2, "user", [{"type": "text", "text": "What is it?"}, IMAGE, {"type": "file", "url": "data:,x", "name": "a"}]),
    entry(3, "run.started"),
    called(
        4, ("c1", "think", '{"thought":"hm"}'), ("c2", "calculator", '{"expression":"1+1"}'),
        ("c3", "calculator", "[1"), ("c4", "calculator", "{}"), text="Let me see.",
    ),
    answered(5, "c1", "think", "Your thought has been logged."),
    answered(6, "c2", "calculator", "2"),
    answered(7, "c3", "calculator", "These are no arguments.", error(ErrorClass.INVALID_TOOL_CALL)),
    answered(8, "c4", "calculator", "The user denied this tool call. No.", error(ErrorClass.TOOL_DENIED)),
    entry(9, "run.retrying", step="2", attempt=1, delay=1.0, fallback=False, error=error(ErrorClass.RATE_LIMITED)),
    said(10, "user", "You repeat yourself.", nudge=True),
    entry(11, "run.pausing", now=True, reason="interrupt"),
    entry(12, "run.paused"),
    entry(13, "run.resumed"),
    entry(14, "run.requires_action", pending_actions=["act_1"]),
    entry(15, "conversation.condensed", step="2", summary="They talked.", through=8),
    called(16, ("c5", "finish", '{"message":"It is two."}'), step="2"),
    answered(17, "c5", "finish", "It is two.", step="2"),
    entry(18, "run.finished", status="completed", stop_reason="end_turn", error=None),
    said(19, "assistant", "It is a picture.", step="3"),
    entry(20, "run.finished", status="failed", stop_reason="error", error=error(ErrorClass.AUTHENTICATION)),
    entry(21, "run.finished", status="failed", stop_reason="stuck", error=error(ErrorClass.STUCK)),
    entry(22, "run.finished", status="incomplete", stop_reason="max_steps", error=None),
    called(
        23, ("c6", "calculator", "{}"), ("c7", "show", '{"what":"a map"}'), ("c8", "show", '{"what":"a map","of":1}'),
        ("c9", "show", '{"what":[]}'), ("c10", "show", "{}"), step="4", risky_calls=["c6"], refused_calls=["c10"],
    ),
    answered(24, "c7", "show", "Shown.", step="4"),
    entry(25, "run.pausing", now=False),
)  # fmt: skip
