"""``palaver list``, ``show`` and ``queues``: what there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from palaver.cli.connection import connected, say
from palaver.cli.options import (
    AgentName,
    ApiKey,
    FailedWith,
    Json,
    OfConversation,
    OlderThan,
    RunId,
    Statuses,
    Tagged,
    Url,
)
from palaver.cli.tables import console, runs_table, show_queues, show_run
from palaver.cli.words import document


def list_runs(
    status: Statuses = None,
    conversation: OfConversation = None,
    tag: Tagged = None,
    agent_name: AgentName = None,
    error_class: FailedWith = None,
    older_than: OlderThan = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """List runs, newest first."""
    before = None if older_than is None else datetime.now(UTC) - timedelta(seconds=older_than)
    with connected(url, api_key) as client:
        found = list(
            client.list(
                status=status or None,
                conversation_id=conversation,
                tag=tag,
                agent=agent_name,
                error_class=error_class,
                created_before=before,
                limit=limit,
            )
        )
    if as_json:
        typer.echo(document([entry.model_dump(mode="json") for entry in found]))
    elif found:
        console().print(runs_table(found))
    else:
        say("No runs.")


def show(run_id: RunId, as_json: Json = False, url: Url = None, api_key: ApiKey = None) -> None:
    """Show one run: where it is, why it waits, what it said, what failed, and how to decide on its calls."""
    with connected(url, api_key) as client:
        found = client.get(run_id)
    if as_json:
        typer.echo(document(found.model_dump(mode="json")))
    else:
        show_run(console(), found)


def queues(as_json: Json = False, url: Url = None, api_key: ApiKey = None) -> None:
    """Show what waits, since when, and who works."""
    with connected(url, api_key) as client:
        said = client.queues()
    if as_json:
        typer.echo(document(said))
    else:
        show_queues(console(), said)
