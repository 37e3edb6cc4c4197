"""A run as hosts see it: one shape for every tool, and the same as a task."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import orjson
from pydantic import JsonValue

from api.http.problems import Problem
from palaver.schemas.actions import PendingAction
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus

from .tables import LIMITS, PASSES, STATES, McpRefusal, State
from .wire import ClientSide

_SOON: Final = 1_000
_LATER: Final = 5_000
"""Milliseconds until asking again may show something new: while work is done, and while it waits."""
_ANSWERS: Final[Mapping[str, Any]] = {
    "approval": {
        "type": "object",
        "properties": {"decision": {"enum": ["approve", "deny"]}, "reason": {"type": "string"}},
        "required": ["decision"],
    },
    "client_tool": {"type": "object", "properties": {"content": {}}, "required": ["content"]},
    "question": {
        "type": "object",
        "properties": {"response": {"enum": ["accept", "decline", "cancel"]}, "content": {"type": "object"}},
        "required": ["response"],
    },
}
"""The shape of an answer of ``run_answer``, by the kind of the action."""
_APPROVAL: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve", "description": "Let the tool be called."},
        "reason": {"type": "string", "title": "Reason", "description": "Why not, for the agent."},
    },
    "required": ["approve"],
}
_OUTPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"output": {"type": "string", "title": "Output", "description": "What the tool answers."}},
    "required": ["output"],
}
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string"},
        "conversation": {"type": "string"},
        "status": {"enum": [*State]},
        "reason": {"type": "string"},
        "poll_after_ms": {"type": "integer"},
        "actions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "action_id": {"type": "string"},
                    "kind": {"enum": ["approval", "client_tool", "question"]},
                    "title": {"type": "string"},
                    "tool": {"type": "string"},
                    "arguments": {},
                    "schema": {"type": "object"},
                    "question": {"type": "object"},
                    "expires_at": {"type": "string"},
                },
                "required": ["action_id", "kind", "title", "tool", "arguments", "schema", "expires_at"],
            },
        },
        "result": {},
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "retryable": {"type": "boolean"},
                "user_action": {"type": "string"},
            },
            "required": ["code", "message", "retryable", "user_action"],
        },
        "expires_at": {"type": "string"},
        "events": {"type": "array", "items": {"type": "object"}},
        "next_after": {"type": "integer"},
        "more_events": {"type": "boolean"},
    },
    "required": ["run_id", "conversation", "status", "expires_at"],
}
"""The shape of a state; ``events`` and what is behind it come from ``run_get`` with ``after``."""


def state_of(run: Run, retention: float) -> dict[str, Any]:
    """Return the state of a run that is kept for ``retention`` seconds after its end."""
    status = _status(run)
    state: dict[str, Any] = {"run_id": run.id, "conversation": run.conversation_id, "status": status}
    if reason := _reason(run):
        state["reason"] = reason
    if not run.status.terminal:
        state["poll_after_ms"] = _poll(run)
    if run.all_pending:
        state["actions"] = [_action(action) for action in run.all_pending]
    result = run.output if run.structured_output is None else run.structured_output
    if result is not None:
        state["result"] = result
    if status is State.FAILED:
        state["error"] = _error(run)
    state["expires_at"] = _at(_expires(run, retention))
    return state


def answer_of(state: Mapping[str, Any], client: ClientSide, *, failed: bool = False) -> dict[str, Any]:
    """Return the result of a tool: an object, and the same as text for who reads no objects."""
    text = orjson.dumps(state).decode()
    return client.complete(content=[{"type": "text", "text": text}], structuredContent=state, isError=failed)


def refusal_of(problem: Problem, kind: McpRefusal, client: ClientSide) -> dict[str, Any]:
    """Return the result of a tool that could not do what it was to."""
    retryable = kind is McpRefusal.LIMIT or problem.code in PASSES
    refused = {"code": kind, "message": problem.sentence, "retryable": retryable}
    if problem.run_id is not None:
        refused["run_id"] = problem.run_id
    return answer_of(refused, client, failed=True)


def task_of(run: Run, retention: float, client: ClientSide) -> dict[str, Any]:
    """Return a run as a task."""
    times, status = run.times, _status(run)
    if status is State.INPUT_REQUIRED and not client.forms:
        # It could not be asked; another process may answer.
        status = State.WORKING
    task: dict[str, Any] = {"taskId": run.id, "status": State.COMPLETED if status is State.FAILED else status}
    if reason := _reason(run):
        task["statusMessage"] = reason
    task["createdAt"] = _at(times.created_at)
    task["lastUpdatedAt"] = _at(times.ended_at or times.started_at or times.created_at)
    task["ttlMs"] = round((_expires(run, retention) - times.created_at) / timedelta(milliseconds=1))
    task["pollIntervalMs"] = _poll(run)
    return task


def whole_task(run: Run, retention: float, client: ClientSide) -> dict[str, Any]:
    """Return a run as a task, with what it asks for or has come to."""
    task = task_of(run, retention, client)
    match task["status"]:
        case State.INPUT_REQUIRED:
            task["inputRequests"] = {action.id: _form(action) for action in run.all_pending}
        case State.COMPLETED:
            failed = _status(run) is State.FAILED
            task["result"] = answer_of(state_of(run, retention), client, failed=failed)
    return task


def _status(run: Run) -> State:
    if run.all_pending and not run.status.terminal:
        return State.INPUT_REQUIRED
    return STATES.get(run.status, State.WORKING)


def _reason(run: Run) -> str | None:
    """Return in a word why it does not go on, or why it ended."""
    if run.status in (RunStatus.PAUSED, RunStatus.CANCELLING):
        return run.status.value
    if run.waiting is not None and not run.status.terminal:
        return run.waiting.reason.value
    return None if run.stop_reason is None else run.stop_reason.value


def _poll(run: Run) -> int:
    return _SOON if run.status is RunStatus.RUNNING and run.waiting is None else _LATER


def _action(action: PendingAction) -> dict[str, Any]:
    asked = {} if action.question is None else {"question": action.question.model_dump(exclude_none=True)}
    return {
        "action_id": action.id,
        "kind": action.type,
        "title": _title(action),
        "tool": action.tool,
        "arguments": _parsed(action.arguments),
        "schema": _ANSWERS[action.type],
        "expires_at": _at(action.expires_at),
        **asked,
    }


def _form(action: PendingAction) -> dict[str, Any]:
    if (question := action.question) is not None:
        message = f"{question.asker}: {question.message}"
        asked = {"mode": "form", "requestedSchema": question.form} if question.url is None else _at_url(question.url)
        return {"method": "elicitation/create", "params": {"message": message, **asked}}
    schema = _APPROVAL if action.type == "approval" else _OUTPUT
    message = f"{_title(action)} Arguments: {action.arguments}"
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def _at_url(url: str) -> dict[str, Any]:
    return {"mode": "url", "url": url}


def _title(action: PendingAction) -> str:
    if action.question is not None:
        return f"{action.question.asker} asks, in a call of the tool {action.tool}: {action.question.message}"
    if action.type == "approval":
        return f"The agent wants to call the tool {action.tool}. Approve it?"
    return f"The agent calls the tool {action.tool}, which is run on your side. What is its output?"


def _parsed(arguments: str) -> JsonValue:
    """Return what the model wrote, as an object if it is JSON."""
    try:
        parsed: JsonValue = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    return parsed


def _error(run: Run) -> dict[str, Any]:
    error = run.error or run.incomplete_details
    reason = "" if run.stop_reason is None else run.stop_reason.value
    sentence = LIMITS.get(reason, f"The run ended: {reason}.")
    if error is None:
        return {"code": reason, "message": sentence, "retryable": False, "user_action": "settings"}
    told = {name: error[name] for name in ("code", "message", "retryable", "user_action")}
    return told if run.error is not None else {**told, "message": sentence}


def _expires(run: Run, retention: float) -> datetime:
    return (run.times.ended_at or run.times.deadline) + timedelta(seconds=retention)


def _at(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
