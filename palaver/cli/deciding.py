"""``palaver approve``, ``deny`` and ``answer``; and asking the user on the terminal about calls that wait."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from palaver.cli.connection import Api, say
from palaver.cli.doing import action_lines, answer_commands, call_text, matching_actions, status_line
from palaver.cli.options import ActionId, Reason, RunId, json_object, text_or_stdin
from palaver.cli.text import one_line
from palaver.client import ClientError, Conflict, Palaver, Unprocessable
from palaver.client.backoff import passing
from palaver.events import ActionRequired, ChildActionRequired, Event, RunPaused
from palaver.schemas.actions import ALL, PendingAction, PendingBelow
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus

_QUESTION: Final = "Approve {call}? [y]es, [n]o, no with a [r]eason, [e]dit the arguments: "
_FORM: Final = json_object("the form of a question is")
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
    api.show(decided, _decision_text("approved", actions, action_id, decided, instead))


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
    api.show(decided, _decision_text("denied", actions, action_id, decided))


def answer(
    run_id: RunId,
    action_id: Annotated[str, typer.Argument(metavar="ACTION_ID", help="The pending action, or the call's id.")],
    output: Annotated[
        str | None,
        typer.Argument(
            metavar="OUTPUT",
            help="What the tool answered, or the form of a question as JSON; - reads it from stdin.",
        ),
    ] = None,
    error: Annotated[bool, typer.Option("--error", help="The call failed, and this says why.")] = False,
    decline: Annotated[bool, typer.Option("--decline", help="Say no to a question.")] = False,
    *,
    api: Api,
) -> None:
    """Give the output of a call of a client tool, or answer the question of a server."""
    with api.connected() as client:
        run = client.get(run_id)
        actions = matching_actions(run, action_id, "client_tool")
        if questions := matching_actions(run, action_id, "question"):
            actions, decided = questions, _respond(client, run_id, questions[0], output, decline=decline)
        elif output is None or decline:
            raise typer.BadParameter("a call of a client tool needs its OUTPUT")
        else:
            decided = client.answer(run_id, action_id, text_or_stdin(output), is_error=error)
    api.show(decided, _decision_text("answered", actions, action_id, decided))


def _respond(client: Palaver, run_id: str, action: PendingAction, output: str | None, *, decline: bool) -> Run:
    if decline:
        return client.respond(run_id, action.id, "decline", digest=action.digest)
    content = None if output is None else _FORM(text_or_stdin(output))
    return client.respond(run_id, action.id, "accept", content, digest=action.digest)


def _decide(
    client: Palaver,
    run_id: str,
    action_id: str | None,
    actions: Sequence[PendingAction],
    details: Mapping[str, Any],
    more: Sequence[Mapping[str, Any]] = (),
) -> Run:
    """Decide on exactly these calls. Without any, the API is asked all the same: it knows best what is wrong."""
    by_run: dict[str, list[Mapping[str, Any]]] = {}
    for action in actions:
        # What is for a run below is a request of its own.
        whose = action.run_id if isinstance(action, PendingBelow) else ""
        item = {"type": "approval", "action_id": action.id, "digest": action.digest, **details}
        by_run.setdefault(whose, []).append(item)
    if not actions:
        by_run[""] = [{"type": "approval", "action_id": action_id or ALL, **details}]
    if more:
        by_run.setdefault("", []).extend(more)
    return [client.send(run_id, by_run[whose]) for whose in sorted(by_run, reverse=True)][-1]


def _decision_text(done: str, actions: Sequence[PendingAction], action_id: str | None, run: Run, more: str = "") -> str:
    calls = ", ".join(map(call_text, actions)) or one_line(action_id)
    return f"{done} {calls}{more}; {status_line(run)}"


class ApprovalPrompt:
    """Hears the events of one run. With ``ask``, the user decides on its calls right here.

    ``transcript_shown``: the user reads the events too, and need not be told which calls wait.
    """

    def __init__(self, client: Palaver, run_id: str, *, ask: bool) -> None:
        self.transcript_shown = False
        self._client = client
        self._run_id = run_id
        self._ask = ask

    def on_event(self, event: Event) -> None:
        """Ask about the action that the event requires, or say how to answer it; or how to go on after a pause.

        Events may be old, and others decide too: nothing is said about what is over.

        Raises:
            KeyboardInterrupt: Ctrl-C in place of an answer.
            ClientError: the API refuses to hear about the run.
        """
        if isinstance(event, RunPaused) and self._is(lambda run: run.status is RunStatus.PAUSED):
            say(f"  palaver resume {self._run_id}")
        if not isinstance(event, ActionRequired | ChildActionRequired):
            return
        action = event.action
        if self._ask and action.type == "approval":
            self._decide(action)
        elif self._waits(action):
            self._tell(action)

    def _decide(self, action: PendingAction) -> None:
        """Ask until there is a decision, the user's or, meanwhile, another person's."""
        decided = False
        while not decided and self._waits(action):
            try:
                decided = self._decided(action)
            except EOFError:
                say("")
                self._tell(action)
                return
            except Conflict as conflict:
                say(one_line(conflict.detail, 1000))
                return
            except ClientError as error:
                if not isinstance(error, Unprocessable) and not passing(error):
                    raise
                say(f"That was not taken: {one_line(str(error), 1000)}")

    def _waits(self, action: PendingAction) -> bool:
        return self._is(lambda run: bool(matching_actions(run, action.id, action.type)))

    def _is(self, so: Callable[[Run], bool]) -> bool:
        """Tell whether ``so`` is true of the run now. An API that is away does not deny it."""
        try:
            return so(self._client.get(self._run_id))
        except ClientError as error:
            if not passing(error):
                raise
            return True

    def _decided(self, action: PendingAction) -> bool:
        """Send the user's answer; tell whether it was a decision."""
        run_id, digest = self._run_id, action.digest
        match _read(_QUESTION.format(call=call_text(action))).lower():
            case "y" | "yes":
                self._client.approve(run_id, action.id, digest=digest)
            case "n" | "no":
                self._client.deny(run_id, action.id, digest=digest)
            case "r" | "reason":
                self._client.deny(run_id, action.id, _read("Reason: ") or None, digest=digest)
            case "e" | "edit":
                arguments = _arguments()
                if arguments is None:
                    return False
                self._client.approve(run_id, action.id, arguments, digest=digest)
            case _:
                return False
        return True

    def _tell(self, action: PendingAction) -> None:
        if self.transcript_shown:
            for command in answer_commands(self._run_id, action):
                say(f"  {command}")
        else:
            for line in action_lines(self._run_id, [action]):
                say(line)


def _arguments() -> Mapping[str, Any] | None:
    """Other arguments; None when what is typed is no JSON object."""
    try:
        arguments = json.loads(_read('Arguments as JSON, such as {"name": "value"}: '))
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return arguments
    say("That is no JSON object.")
    return None


def _read(question: str) -> str:
    """A line from the user. Raises EOFError when there is none."""
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()
