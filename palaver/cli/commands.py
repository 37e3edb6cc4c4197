"""The commands, one function each."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from palaver.cli.connection import INTERRUPTED, connected, say
from palaver.cli.ending import Ending, exit_code, until_the_end
from palaver.cli.options import ApiKey, Json, RunId, Url
from palaver.cli.tables import console, runs_table, show_queues, show_run
from palaver.cli.words import document, plain
from palaver.lifecycle import RunStatus

app = typer.Typer(
    name="palaver",
    help="Run agent conversations: submit, watch, stop.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say to the agent; - reads it from stdin.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="provider/name; needed unless --conversation has one.")
    ] = None,
    tool: Annotated[list[str] | None, typer.Option("--tool", "-t", help="A tool it may use; repeatable.")] = None,
    instructions: Annotated[
        str | None, typer.Option("--instructions", "-i", help="What the model is told first.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", min=1, help="Model calls it may make.")] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="Go on with this conversation.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag for `list`; repeatable.")] = None,
    no_stream: Annotated[
        bool, typer.Option("--no-stream", help="Wait, then print only the answer; the rest goes to stderr.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit and leave; prints the run's id.")] = False,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Submit a run and follow it to its end. Ctrl-C cancels it; a second one leaves."""
    with connected(url, api_key) as client:
        submitted = client.submit(
            sys.stdin.read() if text == "-" else text,
            model=model,
            tools=tool or (),
            instructions=instructions,
            max_steps=max_steps,
            conversation_id=conversation,
            tags=tag or (),
        )
        if detach:
            typer.echo(document(submitted.model_dump(mode="json")) if as_json else submitted.id)
            return
        ending = Ending(client, submitted.id, console(), after=0, show_input=False)
        if no_stream:
            interrupted = until_the_end(client, submitted.id, ending.wait)
        elif as_json:
            interrupted = until_the_end(client, submitted.id, ending.stream_json)
        else:
            ending.transcript.begin(submitted)
            interrupted = until_the_end(client, submitted.id, ending.stream)
        ended = ending.run()
        if no_stream and as_json:
            typer.echo(document(ended.model_dump(mode="json")))
        elif no_stream:
            if ended.output:
                typer.echo(plain(ended.output))
            ending.summarise(ended)
        elif not as_json:
            ending.transcript.end(ended)
        raise typer.Exit(exit_code(ended, interrupted=interrupted))


@app.command("list")
def list_runs(
    status: Annotated[
        list[RunStatus] | None, typer.Option("--status", "-s", help="Only runs in this status; repeatable.")
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="Only runs of this conversation.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only runs with this tag.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """List runs, newest first."""
    with connected(url, api_key) as client:
        found = list(client.list(status=status, conversation_id=conversation, tag=tag, limit=limit))
    if as_json:
        typer.echo(document([entry.model_dump(mode="json") for entry in found]))
    elif found:
        console().print(runs_table(found))
    else:
        say("No runs.")


@app.command()
def show(run_id: RunId, as_json: Json = False, url: Url = None, api_key: ApiKey = None) -> None:
    """Show one run: where it is, why it waits, what it said, what failed."""
    with connected(url, api_key) as client:
        found = client.get(run_id)
    if as_json:
        typer.echo(document(found.model_dump(mode="json")))
    else:
        show_run(console(), found)


@app.command()
def watch(
    run_id: RunId,
    after: Annotated[int, typer.Option("--after", min=0, help="Begin behind this event's number.")] = 0,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Watch a run from its beginning to its end. Ctrl-C only stops watching."""
    with connected(url, api_key) as client:
        ending = Ending(client, run_id, console(), after=after, show_input=True)
        try:
            if as_json:
                ending.stream_json()
            else:
                ending.stream()
        except KeyboardInterrupt:
            say(f"\nThe run goes on. `palaver cancel {run_id}` stops it.")
            raise typer.Exit(INTERRUPTED) from None
        ended = ending.run()
        if not as_json:
            ending.transcript.end(ended)
        raise typer.Exit(exit_code(ended))


@app.command()
def cancel(
    run_id: RunId,
    reason: Annotated[str | None, typer.Option("--reason", "-r", help="Kept with the run.")] = None,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Ask a run to stop. Asking twice is asking once."""
    with connected(url, api_key) as client:
        asked = client.cancel(run_id, reason)
    typer.echo(document(asked.model_dump(mode="json")) if as_json else f"{asked.id} is {asked.status}")


@app.command()
def queues(as_json: Json = False, url: Url = None, api_key: ApiKey = None) -> None:
    """Show what waits, since when, and who works."""
    with connected(url, api_key) as client:
        said = client.queues()
    if as_json:
        typer.echo(document(said))
    else:
        show_queues(console(), said)
