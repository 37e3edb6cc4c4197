"""``palaver stats``: what became of runs and steps within the last hour, day or week."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from palaver.cli.commands import Command
from palaver.cli.connection import Api
from palaver.cli.layout import print_list
from palaver.cli.tables import console
from palaver.cli.text import dollars, moment, plain, seconds

from .windows import WindowName

_COLUMNS = (
    "SINCE",
    "RUNS",
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "STEPS",
    "QUEUED P50",
    "P99",
    "CALLS P50",
    "P99",
    "COST",
)


def stats(
    window: Annotated[
        WindowName, typer.Argument(metavar="WINDOW", help="hour, by minutes; day, by quarters of an hour; or week.")
    ] = "hour",
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="For operators: of this tenant alone.")] = None,
    *,
    api: Api,
) -> None:
    """Show what became of runs and steps of late, how long they waited, and what models used."""
    with api.connected() as client:
        report = client.statistics(window=window, tenant=tenant)
    api.show(report, lambda: show_statistics(console(), report))


def show_statistics(to: Console, report: Mapping[str, Any]) -> None:
    """Print a row for each span in which anything happened, and their sum; then errors and models."""
    total = report.get("total") or {}
    spans = [[moment(datetime.fromisoformat(str(span["start"]))), *_numbers(span)] for span in report.get("data") or ()]
    print_list(to, _COLUMNS, [*spans, ["in all", *_numbers(total)]])
    for name, what in (("run_errors", "runs that failed"), ("step_errors", "attempts that failed")):
        errors = total.get(name) or {}
        if errors:
            told = ", ".join(f"{error} {number}" for error, number in errors.items())
            to.print(Text(plain(f"{what}: {told}"), "yellow"), soft_wrap=True)
    for model in total.get("models") or ():
        priced = f", {dollars(model['cost_usd'])}" if model["cost_usd"] else ""
        tokens = f"{model['input_tokens']} tokens in and {model['output_tokens']} out"
        to.print(Text(plain(f"{model['model']}: {model['calls']} calls, {tokens}{priced}")), soft_wrap=True)


def _numbers(counts: Mapping[str, Any]) -> list[str]:
    runs, steps = counts["runs"], counts["steps"].values()
    cost = sum(model["cost_usd"] for model in counts["models"])
    return [
        *(str(runs[name]) for name in ("submitted", "completed", "failed", "cancelled")),
        str(sum(sum(outcomes.values()) for outcomes in steps)),
        *(
            "-" if counts[times][percent] is None else seconds(counts[times][percent])
            for times in ("queue_time", "model_calls")
            for percent in ("p50_seconds", "p99_seconds")
        ),
        dollars(cost) if cost else "-",
    ]


COMMANDS: Final = (Command("stats", stats, after="usage"),)
