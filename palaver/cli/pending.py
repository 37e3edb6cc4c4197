"""What a run waits for, in words, and the commands that answer it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palaver.cli.text import moment, one_line, visible
from palaver.schemas.actions import ActionType, PendingAction
from palaver.schemas.models import Run


def call_text(action: PendingAction) -> str:
    """The call, ``send {"to": "bob"}``: all of it, because somebody is to decide on it."""
    return visible(f"{action.tool} {action.arguments}")


def awaited(kind: object) -> str:
    """What an action of this type waits for."""
    return "an approval" if kind == "approval" else "an output of the client"


def answer_commands(run_id: str, action: PendingAction) -> tuple[str, ...]:
    """What to type."""
    about = f"{one_line(run_id)} {one_line(action.id)}"
    if action.type == "approval":
        return f"palaver approve {about}", f"palaver deny {about} --reason TEXT"
    return (f"palaver answer {about} OUTPUT",)


def action_lines(run_id: str, actions: Sequence[PendingAction]) -> Iterator[str]:
    """Each action with its commands, one to a line."""
    for action in actions:
        yield f"{call_text(action)} waits for {awaited(action.type)} until {moment(action.expires_at)}"
        for command in answer_commands(run_id, action):
            yield f"  {command}"


def status_line(run: Run) -> str:
    """Where a run is after something was done to it."""
    where = f"{run.id} is {run.status}"
    if run.pausing:
        return f"{where} and pauses once nothing is under way any more"
    if run.pending_actions:
        count = len(run.pending_actions)
        return f"{where}; {count} call{'' if count == 1 else 's'} still wait{'s' if count == 1 else ''}"
    return where


def matching_actions(run: Run, action_id: str | None, kind: ActionType) -> tuple[PendingAction, ...]:
    """The pending actions of this type that are meant: all of them, or the one of this id (or of this call's)."""
    return tuple(
        action
        for action in run.pending_actions
        if action.type == kind and action_id in (None, action.id, action.call_id)
    )
