"""Runs as tasks (``io.modelcontextprotocol/tasks``), for clients that know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.http.audit import detail, only_read
from palaver import operations
from palaver.errors import Refused, StateConflict, UnknownRun
from palaver.operations import Backend, Caller, InsufficientScope
from palaver.schemas.actions import ApprovalDecision, Item, PendingAction, PendingBelow, QuestionAnswer, ToolOutput
from palaver.schemas.models import Run
from palaver.vocabulary.limits import limit_of

from .calls import keep_to, note_answers
from .states import whole_task
from .tables import INVALID_PARAMS, MISSING_CAPABILITY
from .wire import TASKS, ClientSide, RpcFault

_LONGEST_REASON: Final = limit_of("deny_reason")
_MOST_RESPONSES: Final = limit_of("run_items")


async def serve_task(
    method: str, params: Mapping[str, Any], backend: Backend, caller: Caller, client: ClientSide
) -> dict[str, Any]:
    """Return the result of ``tasks/get``, ``tasks/update`` or ``tasks/cancel``.

    Raises:
        RpcFault: there is no such task, or the client does not know tasks.
        InsufficientScope: the key is not for it.
    """
    if not client.tasks:
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise RpcFault(MISSING_CAPABILITY, "The client does not say that it knows tasks.", data=needed, status=400)
    task_id = params.get("taskId")
    if not isinstance(task_id, str):
        raise RpcFault(INVALID_PARAMS, "params need a taskId")
    try:
        match method:
            case "tasks/get":
                return await _get(task_id, backend, caller, client)
            case "tasks/update":
                await _update(task_id, params.get("inputResponses"), backend, caller)
            case _:
                await _cancel(task_id, backend, caller)
    except UnknownRun:
        raise RpcFault(INVALID_PARAMS, "There is no such task.", "run_not_found") from None
    return client.complete()


async def _get(task_id: str, backend: Backend, caller: Caller, client: ClientSide) -> dict[str, Any]:
    only_read()
    operations.require_scope(caller, "runs:read")
    run = await _run(task_id, backend, caller)
    return client.complete(**whole_task(run, backend.settings.retention, client))


async def _update(task_id: str, responses: Any, backend: Backend, caller: Caller) -> None:
    """Answer what the run waits for. Answers to anything else are late or none, and are ignored."""
    operations.require_scope(caller, "actions:approve", "runs:act")
    if not isinstance(responses, dict) or len(responses) > _MOST_RESPONSES:
        raise RpcFault(INVALID_PARAMS, f"params need inputResponses, an object of at most {_MOST_RESPONSES}")
    run = await _run(task_id, backend, caller)
    by_run: dict[str, list[Item]] = {}
    for action in run.all_pending:
        item = _item(action, responses[action.id]) if action.id in responses else None
        if item is not None:
            by_run.setdefault(action.run_id if isinstance(action, PendingBelow) else task_id, []).append(item)
    if not by_run:
        only_read()
    for items in by_run.values():
        await _answer(task_id, items, backend, caller)


async def _answer(task_id: str, items: Sequence[Item], backend: Backend, caller: Caller) -> None:
    note_answers("tasks/update", task_id, items)
    try:
        await operations.act(backend, task_id, items, caller)
    except StateConflict:
        # Another client was faster, or the run has ended.
        only_read()
    except InsufficientScope:
        raise
    except Refused as refused:
        raise RpcFault(INVALID_PARAMS, refused.detail or "The responses do not fit.", refused.code) from None


async def _cancel(task_id: str, backend: Backend, caller: Caller) -> None:
    operations.require_scope(caller, "runs:act")
    await keep_to(backend, caller, task_id)
    detail(tool="tasks/cancel", run=task_id, mode="now")
    try:
        await operations.cancel(backend, task_id, caller)
    except StateConflict:
        # It has ended: a cancel is a wish.
        only_read()


async def _run(task_id: str, backend: Backend, caller: Caller) -> Run:
    await keep_to(backend, caller, task_id)
    return await operations.read_run(backend, task_id)


def _item(action: PendingAction, response: Any) -> Item | None:
    """Return what a form was answered with; None if the user has put it aside.

    Raises:
        RpcFault: it is no answer to that form.
    """
    if action.type == "question":
        return answer_to_question(action.id, response)
    approval = action.type == "approval"
    match response:
        case {"action": "cancel"}:
            return None
        case {"action": "decline"} if approval:
            return _decision(action, {"approve": False})
        case {"action": "decline"}:
            why = "The user declined to answer."
            return ToolOutput(type="tool_output", call_id=action.id, output=why, is_error=True)
        case {"action": "accept", "content": dict() as content} if approval:
            return _decision(action, content)
        case {"action": "accept", "content": {"output": output}}:
            return ToolOutput(type="tool_output", call_id=action.id, output=output)
    raise RpcFault(INVALID_PARAMS, "a response has an action, and a form that is accepted its content")


def answer_to_question(action_id: str, response: Any) -> QuestionAnswer:
    """Return the answer to a question, in the words that both sides have for it.

    Raises:
        RpcFault: it is none.
    """
    match response:
        case {"action": "accept", "content": dict() as content}:
            return QuestionAnswer(type="answer", action_id=action_id, response="accept", content=content)
        case {"action": "accept" | "decline" | "cancel" as said}:
            return QuestionAnswer(type="answer", action_id=action_id, response=said)
    raise RpcFault(INVALID_PARAMS, "a response has an action, and a form that is accepted its content")


def _decision(action: PendingAction, content: Mapping[str, Any]) -> ApprovalDecision:
    approve, reason = content.get("approve"), content.get("reason")
    if not isinstance(approve, bool) or not isinstance(reason, str | None):
        raise RpcFault(INVALID_PARAMS, "the form has the fields approve, true or false, and reason, a text")
    if approve:
        return ApprovalDecision(type="approval", action_id=action.id, decision="approve")
    if len(reason or "") > _LONGEST_REASON:
        raise RpcFault(INVALID_PARAMS, f"a reason has at most {_LONGEST_REASON} characters")
    return ApprovalDecision(type="approval", action_id=action.id, decision="deny", reason=reason or None)
