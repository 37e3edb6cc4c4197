"""``palaver list``, ``show``, ``queues`` and ``usage``: what there is, and what was used."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import typer

from palaver.cli.bulk import FilterOptions
from palaver.cli.connection import Api, say
from palaver.cli.conversations import show_conversation
from palaver.cli.doing import refused_lines
from palaver.cli.options import RunId, a_date
from palaver.cli.tables import console, show_models, show_queues, show_run, show_runs, show_usage


def list(
    filters: FilterOptions,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    *,
    api: Api,
) -> None:
    """List runs, newest first."""
    with api.connected() as client:
        runs = [*client.list(**filters.listed, limit=limit)]
    api.show(runs, lambda: show_runs(console(), runs) if runs else say("No runs."))


def show(run_id: RunId, api: Api) -> None:
    """Show one run: what it is doing, why it waits, what it said, what failed, and how to decide on its calls."""
    if run_id.startswith("conv_"):
        show_conversation(run_id, api)
        if not api.as_json:
            list(FilterOptions(conversation=run_id), api=api)
        return
    with api.connected() as client:
        run = client.get(run_id)
        refused = [] if api.as_json else [*refused_lines(run, client.queues)]
    api.show(run, lambda: show_run(console(), run, refused))


def models(api: Api) -> None:
    """List the models that runs may name, what they cost, and whether workers can ask them."""
    with api.connected() as client:
        listed = [*client.models()]
    api.show(listed, lambda: show_models(console(), listed) if listed else say("No providers."))


def queues(api: Api) -> None:
    """Show what waits, since when, and who works."""
    with api.connected() as client:
        state = client.queues()
    api.show(state, lambda: show_queues(console(), state))


def usage(
    start: Annotated[date | None, typer.Option(parser=a_date, metavar="DATE", help="The first day (UTC).")] = None,
    end: Annotated[date | None, typer.Option(parser=a_date, metavar="DATE", help="The last day; today.")] = None,
    group_by: Annotated[
        str, typer.Option(metavar="NAMES", help="A row for each of: day, agent, model, key; comma separated.")
    ] = "day",
    *,
    api: Api,
) -> None:
    """Show what models used, and what that cost, by day, agent, model or key."""
    with api.connected() as client:
        report = client.usage(start=start, end=end, group_by=group_by.split(","))
    api.show(report, lambda: show_usage(console(), report))
