"""Chat completions as objects, and the errors that clients get in their place."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from palaver.errors import StateConflict
from palaver.schemas.arguments import as_json
from palaver.schemas.models import Run, Usage
from palaver.vocabulary.lifecycle import RunStatus, StopReason

from .. import operations
from ..operations import Backend, Caller
from .states import MODEL
from .tables import FINISHES, INVALID_PROMPT, RATE_LIMIT_EXCEEDED, error_code

_STATUSES: Final[Mapping[str, int]] = {
    RATE_LIMIT_EXCEEDED: 429,
    INVALID_PROMPT: 400,
}
"""HTTP statuses by the code of the error that ended a run; others are 500."""
_DECISION: Final = "a call waits for a decision, which chat completions have no message for: create a response"


async def let_go(backend: Backend, caller: Caller, run: Run, reason: str) -> None:
    """Cancel a run that nobody waits for any more. One that has ended stays as it is."""
    with suppress(StateConflict):
        await operations.cancel(backend, run.id, caller, reason=reason)


async def refusal_of(backend: Backend, caller: Caller, run: Run) -> tuple[int, dict[str, Any]] | None:
    """Return the status and the error that a completion is in the place of an answer; None if it has one."""
    if run.status is RunStatus.REQUIRES_ACTION:
        if all(action.type == "client_tool" for action in run.pending_actions):
            return None
        await let_go(backend, caller, run, _DECISION)
        return 409, _error("conflict_error", "pending_action", f"The run cannot go on here: {_DECISION}.", run)
    match run.status:
        case RunStatus.COMPLETED | RunStatus.INCOMPLETE:
            return None
        case RunStatus.CANCELLED | RunStatus.CANCELLING:
            return 409, _error("conflict_error", "cancelled", "The run was cancelled.", run)
    failed = run.error
    if failed is None:
        return 500, _error(
            "server_error", str(run.stop_reason or run.status), "The run has not come to an answer.", run
        )
    status = _STATUSES.get(error_code(failed["class"]), 500)
    kind = "rate_limit_error" if status == 429 else "server_error"
    return status, _error(kind, failed["class"], failed["message"], run)


def _error(kind: str, code: str, message: str, run: Run) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": None, "code": code, "run_id": run.id}


async def completion_of(backend: Backend, caller: Caller, run: Run) -> dict[str, Any]:
    calls = tool_calls(run)
    text = run.output
    if calls:
        text = await _text_beside_calls(backend, run)
        await let_go(backend, caller, run, "its calls are answered with the next chat completion")
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    choice = {
        "index": 0,
        "message": {**message, "tool_calls": calls} if calls else message,
        "logprobs": None,
        "finish_reason": finish_of(run),
    }
    return {**about(run, "chat.completion"), "choices": [choice], "usage": usage_of(run.usage)}


async def _text_beside_calls(backend: Backend, run: Run) -> str | None:
    message = await operations.last_message(backend, run.conversation_id)
    said = None if message is None else message.data["message"]
    return said["content"] if said and isinstance(said["content"], str) and said["content"] else None


def tool_calls(run: Run) -> list[dict[str, Any]]:
    """Return the calls that a run waits for, as chat completions have them."""
    return [
        {
            "id": action.call_id,
            "type": "function",
            "function": {"name": action.tool, "arguments": as_json(action.arguments)},
        }
        for action in run.pending_actions
        if run.status is RunStatus.REQUIRES_ACTION
    ]


def finish_of(run: Run) -> str:
    """Return the reason why a completion ends."""
    if run.stop_reason is StopReason.CONTENT_FILTER:
        return "content_filter"
    return FINISHES[run.status]


def about(run: Run, kind: str) -> dict[str, Any]:
    """Return the fields that a completion and each of its chunks have."""
    return {
        "id": run.id.replace("run_", "chatcmpl-", 1),
        "object": kind,
        "created": int(run.times.created_at.timestamp()),
        "model": run.metadata.get(MODEL, run.agent.model),
    }


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return what a run has used, in the words of chat completions."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
