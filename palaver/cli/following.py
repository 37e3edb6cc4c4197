"""Staying with a run until it ends: streaming or waiting, Ctrl-C, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Literal

import typer
from rich.console import Console

from palaver.cli.approving import ApprovalPrompt
from palaver.cli.connection import INTERRUPTED, say
from palaver.cli.doing import doing
from palaver.cli.progress import Progress
from palaver.cli.text import document
from palaver.cli.transcript import Transcript
from palaver.client import ClientError, Conflict, Palaver
from palaver.client.backoff import passing
from palaver.events import Event, StreamRewound
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus


class Follower:
    """One run, followed to its end in one of three ways; the last event shown is remembered between them.

    With ``ask`` the user is asked about calls that wait for an approval; without, told how to decide on them. With
    ``reasoning`` what the model thinks is shown, too.
    """

    def __init__(
        self,
        client: Palaver,
        run_id: str,
        console: Console,
        *,
        after: int,
        show_input: bool,
        ask: bool,
        reasoning: bool = False,
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._position = after
        self._include: Literal["reasoning"] | None = "reasoning" if reasoning else None
        self._prompt = ApprovalPrompt(client, run_id, ask=ask)
        self._asking = False
        self._away: ClientError | None = None
        """Why the API does not answer, while it does not."""
        self.transcript = Transcript(console, show_input=show_input)

    def stream(self) -> None:
        """Write the transcript as it comes."""
        self._prompt.transcript_shown = True
        self._follow(self.transcript.show)

    def stream_json(self) -> None:
        """Write each event as a line of JSON."""
        self.transcript.doing = "waiting for the next event"
        self._follow(lambda event: typer.echo(document(event.model_dump(mode="json"))))

    def wait(self) -> None:
        """Only wait."""
        self.transcript.doing = "waiting for the end"
        self._follow(lambda event: None)

    def run(self) -> Run:
        """The run, which has ended."""
        return self._client.wait(self._run_id)

    def summarise(self, ended: Run) -> None:
        """Say on standard error how it ended."""
        Transcript(Console(stderr=True, highlight=False), show_input=False).end(ended)

    def _follow(self, show: Callable[[Event], None]) -> None:
        """Show the events to the last one, however long the API is away: there is a run, so it was there before."""
        with Progress(self.say_still) as progress:
            while True:
                try:
                    with closing(self._client.events(self._run_id, self._position, include=self._include)) as events:
                        for event in events:
                            progress.heard()
                            self._away = None
                            if isinstance(event, StreamRewound):
                                self._position = event.first - 1
                            self._position = max(self._position, event.seq)
                            show(event)
                            self._see_to(event)
                            progress.heard()
                    return
                except ClientError as error:
                    if not passing(error):
                        raise
                    self._away = error

    def _see_to(self, event: Event) -> None:
        self._asking = True
        try:
            self._prompt.on_event(event)
        finally:
            self._asking = False

    def say_still(self, quiet: float) -> None:
        """Say on standard error what the run is busy with, after so many seconds in which nothing happened."""
        if self._asking:
            return  # it is the user's turn
        newline = "\n" if self.transcript.mid_line else ""
        self.transcript.mid_line = False
        say(f"{newline}… {self._now() or f'{self._told()}, {quiet:.0f} s so far'}")

    def _now(self) -> str:
        """What the run says itself that it is doing; empty if it does not."""
        if self._away is None:
            with suppress(ClientError):
                return doing(self._client.get(self._run_id))
        return ""

    def _told(self) -> str:
        """What the events have told of it."""
        return f"trying to reach the API again ({self._away})" if self._away else self.transcript.doing


def until_the_end(client: Palaver, run_id: str, follow: Callable[[], None]) -> bool:
    """Follow; the first Ctrl-C cancels the run and goes on, the second leaves. Returns if there was one."""
    try:
        follow()
    except KeyboardInterrupt:
        try:
            _cancel(client, run_id)
            follow()
        except KeyboardInterrupt:
            say(f"\nLeft. `palaver show {run_id}` says what became of it.")
            raise typer.Exit(INTERRUPTED) from None
        return True
    return False


def exit_code(run: Run, *, interrupted: bool = False) -> int:
    """0 completed, 1 any other end, 130 after Ctrl-C."""
    if interrupted:
        return INTERRUPTED
    return 0 if run.status is RunStatus.COMPLETED else 1


def _cancel(client: Palaver, run_id: str) -> None:
    say("\nCancelling the run; press Ctrl-C again to leave without waiting.")
    try:
        client.cancel(run_id, "Ctrl-C")
    except Conflict:
        return  # it ended in this very moment; what follows says how
    except ClientError as error:
        say(f"palaver: the run could not be cancelled: {error}. It goes on: palaver cancel {run_id}")
