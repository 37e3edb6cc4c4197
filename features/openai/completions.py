"""Chat completions as objects, and the errors that clients get in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

from palaver import operations
from palaver.errors import StateConflict
from palaver.errors.sentences import Sentence
from palaver.events import EventKind
from palaver.operations import Backend, Caller
from palaver.schemas.arguments import as_json
from palaver.schemas.models import Run, Usage
from palaver.vocabulary.lifecycle import RunStatus, StopReason

from .states import MODEL
from .tables import FINISHES, INVALID_PROMPT, RATE_LIMIT_EXCEEDED, error_code

_STATUSES: Final[Mapping[str, int]] = {
    RATE_LIMIT_EXCEEDED: 429,
    INVALID_PROMPT: 400,
}
"""HTTP statuses by the code of the error that ended a run; others are 500."""
_DECISION: Final = "a call waits for a decision, which chat completions have no message for: create a response"


async def let_go(backend: Backend, caller: Caller, run: Run, reason: str) -> None:
    """Cancel a run that is not awaited any more. One that has ended stays as it is."""
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
    text, calls = await answer_of(backend, caller, run)
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    choice = {
        "index": 0,
        "message": {**message, "tool_calls": calls} if calls else message,
        "logprobs": None,
        "finish_reason": finish_of(run, calls),
    }
    return {**about(run, "chat.completion"), "choices": [choice], "usage": usage_of(run.usage)}


async def answer_of(backend: Backend, caller: Caller, run: Run) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the text and the calls that a completion ends with. A run that waits for the client ends so, as the client
    takes its calls over; so has one that the same request is answered with again."""
    if run.status is RunStatus.REQUIRES_ACTION:
        await operations.hand_over(backend, run, caller)
    elif run.output != "":
        return run.output, []
    taken, said = set[str](), dict[str, Any]()
    async with aclosing(operations.read_log(backend, run.conversation_id, newest_first=True)) as pages:
        async for entry in (entry async for page in pages for entry in page if entry.run_id == run.id):
            said = entry.data.get("message", {})
            if entry.type == EventKind.TOOL_FINISHED and said["content"] == Sentence.TAKEN_OVER:
                taken.add(said["call_id"])
            elif entry.type == EventKind.MESSAGE_CREATED and said["role"] == "assistant":
                break
    if not taken:
        return run.output, []
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": as_json(call["arguments"])},
        }
        for call in said["tool_calls"]
        if call["id"] in taken
    ]
    return said["content"] if isinstance(said["content"], str) and said["content"] else None, calls


def finish_of(run: Run, calls: Sequence[Any]) -> str:
    """Return the reason why a completion ends."""
    if calls:
        return "tool_calls"
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
