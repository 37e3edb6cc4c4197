"""``palaver run`` and ``palaver watch``: staying with a run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from palaver.cli.connection import INTERRUPTED, Api, say
from palaver.cli.conversations import watch_conversation
from palaver.cli.following import Follower, exit_code, until_the_end
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
            tags=tag or (),
            metadata=dict(metadata or ()),
            start_after=start_after,
            start_by=start_by,
            deadline=deadline,
            idempotency_key=idempotency_key,
        )
        if detach:
            api.show(submitted, submitted.id)
            return
        on_terminal = sys.stdin.isatty() and not api.as_json
        follower = Follower(client, submitted.id, console(), after=0, show_input=False, ask=on_terminal)
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
        client.get(run_id)  # from here on there is a run and an API, and it is waited for
        follower = Follower(
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
