"""What an input of a run must be beyond its shape: one answer for each action, words, arguments that fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from palaver.errors import Fault
from palaver.schemas.actions import ALL, ApprovalDecision, Item, PendingAction, Steering, ToolOutput

from ..backend import Backend, within_deadline
from ..catalog import KnownTools, argument_faults
from . import refuse


async def admit_items(run_id: str, items: Sequence[Item], backend: Backend) -> None:
    """Let the items of an input in. Which action is which, and whether it is still pending, is the store's to say.

    Raises:
        Refused: everything that is wrong with them.
        UnknownRun: the arguments of a call are edited, and the run is not there.
    """
    refuse(chain(_doubles(items), _silences(items)))
    if any(isinstance(item, ApprovalDecision) and item.decision == "edit" for item in items):
        run = await within_deadline(backend.store.runs.get(run_id))
        tools = await within_deadline(backend.catalog.tools())
        pending = {action.id: action for action in run.pending_actions if action.type == "approval"}
        refuse(
            fault
            for index, item in enumerate(items)
            if isinstance(item, ApprovalDecision) and item.arguments is not None and item.action_id in pending
            for fault in _misfits(f"/items/{index}", item.arguments, pending[item.action_id], tools)
        )


def _doubles(items: Sequence[Item]) -> Iterator[Fault]:
    before: set[tuple[str, str]] = set()
    for index, item in enumerate(items):
        match item:
            case ApprovalDecision():
                field, target = "action_id", item.action_id
            case ToolOutput():
                field, target = "call_id", item.call_id
            case _:
                continue
        if (field, target) in before:
            every = "all approvals are" if target == ALL else "this one is"
            yield Fault(f"/items/{index}/{field}", "duplicate_item", f"{every} answered by an item before")
        before.add((field, target))


def _silences(items: Sequence[Item]) -> Iterator[Fault]:
    for index, item in enumerate(items):
        if isinstance(item, Steering) and not item.content.strip():
            yield Fault(f"/items/{index}/content", "empty_input", "says nothing")


def _misfits(where: str, arguments: dict[str, object], action: PendingAction, tools: KnownTools) -> Iterator[Fault]:
    """Why ``arguments`` are not those of the action's tool; the worker would only tell the model."""
    if action.tool not in tools:
        yield Fault(f"{where}/arguments", "unknown_tool", "cannot be checked: no worker has the tool any more")
        return
    for fault in argument_faults(tools[action.tool], arguments):
        yield Fault(f"{where}/arguments{fault.pointer}", fault.code, fault.message)
