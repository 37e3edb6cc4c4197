"""``palaver run`` and ``palaver watch``: staying with a run until it ends, Ctrl-C, and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Annotated, Literal

import typer
from rich.console import Console

from palaver.cli.connection import INTERRUPTED, Api, QuietNotice, say
from palaver.cli.conversations import watch_conversation
from palaver.cli.deciding import ApprovalPrompt
from palaver.cli.doing import doing, waiting
from palaver.cli.options import (
    Agent,
    Ask,
    Budget,
    Deadline,
    IdempotencyKey,
    Metadata,
    OnConflict,
    StartAfter,
    StartBy,
    approvals,
    text_or_stdin,
)
from palaver.cli.tables import console
from palaver.cli.text import document, plain
from palaver.cli.transcript import Transcript
from palaver.client import ClientError, Conflict, Palaver
from palaver.client.backoff import passing
from palaver.events import Event, StreamRewound
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus, WaitReason


def run(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="What to say to the agent; - reads it from stdin. None answers what was said in --conversation.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="provider/name; not needed with --conversation.")
    ] = None,
    tool: Annotated[list[str] | None, typer.Option("--tool", "-t", help="A tool it may use; repeatable.")] = None,
    ask: Ask = None,
    instructions: Annotated[
        str | None, typer.Option("--instructions", "-i", help="What the model is told first.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", min=1, help="Model calls it may make.")] = None,
    agent: Agent = None,
    budget: Budget = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="Go on with this conversation.")
    ] = None,
    on_conflict: OnConflict = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag for `list`; repeatable.")] = None,
    metadata: Metadata = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=0, max=9, help="0 goes first among your runs that wait; usually 5.")
    ] = None,
    start_after: StartAfter = None,
    start_by: StartBy = None,
    deadline: Deadline = None,
    idempotency_key: IdempotencyKey = None,
    no_stream: Annotated[
        bool, typer.Option("--no-stream", help="Wait, then print only the answer; the rest goes to stderr.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit and leave; prints the run's id.")] = False,
    *,
    api: Api,
) -> None:
    """Submit a run and follow it to its end. Ctrl-C cancels it; a second one leaves.

    On a terminal you are asked about calls that wait for an approval; else it says which commands decide on them.
    """
    if not (model or agent or conversation):
        raise typer.BadParameter("who answers? Give --model provider/name, or --conversation to go on with one")
    if text is None and not conversation:
        raise typer.BadParameter("what is it to answer? Give TEXT, or --conversation to answer what was said there")
    with api.connected() as client:
        submitted = client.submit(
            [] if text is None else text_or_stdin(text),
            agent=agent,
            model=model,
            tools=tool or (),
            approvals=approvals(ask),
            instructions=instructions,
            max_steps=max_steps,
            conversation_id=conversation,
            on_conflict=on_conflict,
            budget=dict(budget or ()),
            priority=priority,
            tags=tag or (),
            metadata=dict(metadata or ()),
            start_after=start_after,
            start_by=start_by,
            deadline=deadline,
            idempotency_key=idempotency_key,
        )
        _say_lack(submitted)
        if detach:
            api.show(submitted, submitted.id)
            return
        on_terminal = sys.stdin.isatty() and not api.as_json
        follower = RunFollower(client, submitted.id, console(), after=0, show_input=False, ask=on_terminal)
        if no_stream:
            interrupted = until_the_end(client, submitted.id, follower.wait)
        elif api.as_json:
            interrupted = until_the_end(client, submitted.id, follower.stream_json)
        else:
            follower.transcript.begin(submitted)
            interrupted = until_the_end(client, submitted.id, follower.stream)
        ended = follower.run()
        if no_stream and api.as_json:
            typer.echo(document(ended.model_dump(mode="json")))
        elif no_stream:
            if ended.output:
                typer.echo(plain(ended.output))
            follower.summarise(ended)
        elif not api.as_json:
            follower.transcript.end(ended)
        raise typer.Exit(exit_code(ended, interrupted=interrupted))


def watch(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID|CONVERSATION_ID", help="What to watch.")],
    after: Annotated[str, typer.Option("--after", metavar="N", help="Begin behind this event's number.")] = "0",
    reasoning: Annotated[
        bool, typer.Option("--reasoning", help="Also what the model thinks before it answers, where providers tell.")
    ] = False,
    *,
    api: Api,
) -> None:
    """Watch a run from its beginning to its end, or a conversation over all of its runs. Ctrl-C only stops watching."""
    if not after.replace(".", "", 1).isdecimal() or ("." in after and run_id.startswith("run_")):
        raise typer.BadParameter(f"--after {after!r} is not the number of an event")
    with api.connected() as client:
        if run_id.startswith("conv_"):
            watch_conversation(client, run_id, after, as_json=api.as_json, reasoning=reasoning)
            return
        _say_lack(client.get(run_id))  # from here on there is a run and an API, and it is waited for
        follower = RunFollower(
            client, run_id, console(), after=int(after), show_input=True, ask=False, reasoning=reasoning
        )
        try:
            if api.as_json:
                follower.stream_json()
            else:
                follower.stream()
        except KeyboardInterrupt:
            say(f"\nThe run goes on. `palaver cancel {run_id}` stops it.")
            raise typer.Exit(INTERRUPTED) from None
        ended = follower.run()
        if not api.as_json:
            follower.transcript.end(ended)
        raise typer.Exit(exit_code(ended))


def _say_lack(run: Run) -> None:
    """Say at once that no worker has what the run needs: it may be waited for in vain."""
    if run.waiting is not None and run.waiting.reason is WaitReason.NO_WORKER:
        say(f"… {waiting(run)}: the run goes on as soon as one comes")


class RunFollower:
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
        with QuietNotice(self.say_still) as progress:
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
        say(f"{newline}… {self._now() or f'{self._last_known()}, {quiet:.0f} s so far'}")

    def _now(self) -> str:
        """Ask the API what the run is doing; empty if it does not say."""
        if self._away is None:
            with suppress(ClientError):
                return doing(self._client.get(self._run_id))
        return ""

    def _last_known(self) -> str:
        """Return what the events have said of the run."""
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
