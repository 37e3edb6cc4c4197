"""``palaver approve``, ``deny`` and ``answer``: what a run waits for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from palaver.cli.connection import Api
from palaver.cli.options import ActionId, Reason, RunId, json_object, text_or_stdin
from palaver.cli.pending import call_text, matching_actions, status_line
from palaver.cli.text import one_line
from palaver.client import Palaver
from palaver.schemas.actions import ALL, PendingAction
from palaver.schemas.models import Run

_Arguments = Annotated[
    Any,
    typer.Option(
        "--arguments",
        parser=json_object("arguments are"),
        metavar="JSON",
        help="Let it run with these arguments, or with those in @FILE; the model is told.",
    ),
]


def approve(
    run_id: RunId,
    action_id: ActionId = None,
    arguments: _Arguments = None,
    *,
    api: Api,
) -> None:
    """Let a call run that waits for an approval, or all that do now."""
    with api.connected() as client:
        actions = matching_actions(client.get(run_id), action_id, "approval")
        if arguments is not None and action_id is None and len(actions) != 1:
            there_are = ", ".join(action.id for action in actions) or "nothing waits for an approval"
            raise typer.BadParameter(f"whose arguments are these? {there_are}")
        if arguments is None:
            decided = _decide(client, run_id, action_id, actions, {"decision": "approve"})
        else:
            decided = _decide(client, run_id, action_id, actions, {"decision": "edit", "arguments": arguments})
    instead = "" if arguments is None else f", with {json.dumps(arguments)} in place of its arguments"
    api.show(decided, _told("approved", actions, action_id, decided, instead))


def deny(
    run_id: RunId,
    action_id: ActionId = None,
    reason: Reason = None,
    stop: Annotated[bool, typer.Option("--stop", help="And stop the run there, without asking the model.")] = False,
    *,
    api: Api,
) -> None:
    """Refuse a call that waits for an approval, or all that do now. The model is told, with the reason."""
    with api.connected() as client:
        actions = matching_actions(client.get(run_id), action_id, "approval")
        details = {"decision": "deny", **({"reason": reason} if reason else {})}
        decided = _decide(client, run_id, action_id, actions, details, [{"type": "stop"}] if stop else ())
    api.show(decided, _told("denied", actions, action_id, decided))


def answer(
    run_id: RunId,
    action_id: Annotated[str, typer.Argument(metavar="ACTION_ID", help="The pending action, or the call's id.")],
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="What the tool answered; - reads it from stdin.")],
    error: Annotated[bool, typer.Option("--error", help="The call failed, and this says why.")] = False,
    *,
    api: Api,
) -> None:
    """Give the output of a call of a client tool."""
    with api.connected() as client:
        actions = matching_actions(client.get(run_id), action_id, "client_tool")
        decided = client.answer(run_id, action_id, text_or_stdin(output), is_error=error)
    api.show(decided, _told("answered", actions, action_id, decided))


def _decide(
    client: Palaver,
    run_id: str,
    action_id: str | None,
    actions: Sequence[PendingAction],
    details: Mapping[str, Any],
    more: Sequence[Mapping[str, Any]] = (),
) -> Run:
    """Decide on exactly these calls. Without any, the API is asked all the same: it knows best what is wrong."""
    about = [{"action_id": action.id, "digest": action.digest} for action in actions]
    items = about or [{"action_id": action_id or ALL}]
    return client.send(run_id, [*({"type": "approval", **item, **details} for item in items), *more])


def _told(what: str, actions: Sequence[PendingAction], action_id: str | None, run: Run, more: str = "") -> str:
    calls = ", ".join(map(call_text, actions)) or one_line(action_id)
    return f"{what} {calls}{more}; {status_line(run)}"
