"""The items of an input to a run: one answer for each action, steering that is not empty, arguments that fit."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

from palaver.errors import FieldError
from palaver.operations.catalog import KnownTools, argument_faults, faults_by_schema
from palaver.schemas.actions import (
    ALL,
    ApprovalDecision,
    Item,
    PendingAction,
    QuestionAnswer,
    Steering,
    ToolOutput,
)
from palaver.schemas.mcp_servers import own_label
from palaver.vocabulary.limits import count_exceeded, limit_of


def faults(items: Sequence[Item]) -> Iterator[FieldError]:
    """Yield a fault for each action that is answered twice, and for each empty steering message."""
    yield from _doubles(items)
    yield from _silences(items)


def edits(items: Sequence[Item]) -> bool:
    """Tell whether one of the items changes the arguments of a call."""
    return any(isinstance(item, ApprovalDecision) and item.decision == "edit" for item in items)


def fills_forms(items: Sequence[Item]) -> bool:
    """Tell whether one of the items accepts a question."""
    return any(isinstance(item, QuestionAnswer) and item.response == "accept" for item in items)


def form_faults(items: Sequence[Item], pending: Sequence[PendingAction]) -> Iterator[FieldError]:
    """Yield the faults of accepted answers that do not fit the forms of their questions, as far as these are
    pending."""
    questions = {action.id: action.question for action in pending if action.question is not None}
    for index, item in enumerate(items):
        if not isinstance(item, QuestionAnswer) or item.response != "accept" or item.action_id not in questions:
            continue
        form, where = questions[item.action_id].form, f"/items/{index}/content"
        if form is None and item.content is not None:
            yield FieldError(where, "invalid_arguments", "is for a question with a form")
        elif form is not None and item.content is None:
            yield FieldError(where, "invalid_arguments", "is required: the form of the question, filled in")
        elif form is not None and len(json.dumps(item.content)) > (most := limit_of("question_answer")):
            count_exceeded("question_answer")
            yield FieldError(where, "too_long", f"must have at most {most:,} characters as JSON")
        elif form is not None:
            for fault in faults_by_schema(form, item.content or {}):
                yield FieldError(f"{where}{fault.pointer}", fault.code, fault.message)


def edit_faults(
    items: Sequence[Item], pending: Sequence[PendingAction], tools: KnownTools, own: Collection[str]
) -> Iterator[FieldError]:
    """Yield the faults of arguments that do not fit the tools of their actions, as far as these are pending. What tools
    of the agent's ``own`` MCP servers take, the worker knows that calls them."""
    pending = [action for action in pending if own_label(own, action.tool) is None]
    approvals = {action.id: action for action in pending if action.type == "approval"}
    for index, item in enumerate(items):
        if isinstance(item, ApprovalDecision) and item.arguments is not None and item.action_id in approvals:
            yield from _misfits(f"/items/{index}", item.arguments, approvals[item.action_id], tools)


def _doubles(items: Sequence[Item]) -> Iterator[FieldError]:
    before: set[tuple[str, str]] = set()
    for index, item in enumerate(items):
        match item:
            case ApprovalDecision():
                field, target = "action_id", item.action_id
            case QuestionAnswer():
                field, target = "action_id", item.action_id
            case ToolOutput():
                field, target = "call_id", item.call_id
            case _:
                continue
        if (field, target) in before:
            every = "all approvals are" if target == ALL else "this one is"
            yield FieldError(f"/items/{index}/{field}", "duplicate_item", f"{every} answered by an item before")
        before.add((field, target))


def _silences(items: Sequence[Item]) -> Iterator[FieldError]:
    for index, item in enumerate(items):
        if isinstance(item, Steering) and not item.content.strip():
            yield FieldError(f"/items/{index}/content", "empty_input", "says nothing")


def _misfits(
    where: str, arguments: dict[str, object], action: PendingAction, tools: KnownTools
) -> Iterator[FieldError]:
    """Yield the faults of ``arguments`` that do not fit the action's tool; the worker would only tell the model."""
    if action.tool not in tools:
        yield FieldError(f"{where}/arguments", "unknown_tool", "cannot be checked: no worker has the tool any more")
        return
    for fault in argument_faults(tools[action.tool], arguments):
        yield FieldError(f"{where}/arguments{fault.pointer}", fault.code, fault.message)
