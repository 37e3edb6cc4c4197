"""Seeing to what a run waits for: asking the user on the terminal, or saying which commands answer it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from palaver.cli.connection import say
from palaver.cli.pending import action_lines, answer_commands, call_text, matching_actions
from palaver.cli.text import one_line
from palaver.client import ClientError, Conflict, Palaver, Unprocessable
from palaver.client.backoff import passing
from palaver.events import ActionRequired, Event, RunPaused
from palaver.schemas.actions import PendingAction
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus

_QUESTION: Final = "Approve {call}? [y]es, [n]o, no with a [r]eason, [e]dit the arguments: "


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
        if not isinstance(event, ActionRequired):
            return
        action = event.action
        if self._ask and action.type == "approval":
            self._decide(action)
        elif self._waits(action):
            self._tell(action)

    def _decide(self, action: PendingAction) -> None:
        """Ask until there is a decision, the user's or, meanwhile, somebody else's."""
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
        """Whether it is so with the run now. An API that is away does not deny it."""
        try:
            return so(self._client.get(self._run_id))
        except ClientError as error:
            if not passing(error):
                raise
            return True

    def _decided(self, action: PendingAction) -> bool:
        """Whether the user's answer was one."""
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
