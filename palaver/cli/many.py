"""Many runs at once: which ones, whether that is meant, and what was done."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any, Final

import typer

from palaver.cli.connection import say
from palaver.cli.progress import Progress
from palaver.cli.words import document, one_line
from palaver.client import BulkResult, Palaver
from palaver.lifecycle import RunAction, RunStatus

_DONE: Final = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs: those that fit all that is given."""

    status: list[RunStatus] | None
    conversation_id: str | None
    tag: str | None
    agent: str | None
    error_class: str | None
    older_than: float | None

    @property
    def given(self) -> dict[str, Any]:
        """What is given, as arguments of `Palaver.bulk`."""
        return {name: value for name, value in asdict(self).items() if value not in (None, [])}


def one_or_many(run_id: str | None, admitted: Filter, *, everything: bool, dry_run: bool) -> str | None:
    """The run that is meant; None for those of the filter, or for all.

    Raises:
        BadParameter: not exactly one of the three is given, or a dry run of one.
    """
    if (run_id is not None) + bool(admitted.given) + everything != 1:
        raise typer.BadParameter("which runs? Give one id, or a filter such as --tag, or --all")
    if run_id is not None and dry_run:
        raise typer.BadParameter("--dry-run goes with a filter, or with --all")
    return run_id


def act(
    client: Palaver,
    action: RunAction,
    admitted: Filter,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Do it to all runs that the filter admits and that it can be done to; a person is asked before.

    Raises:
        Exit: 1, the person said no.
    """
    wanted = {"status": sorted(status for status in RunStatus if status.allows(action)), **admitted.given, **how}
    if not (dry_run or yes) and sys.stdin.isatty():
        count = len(_patiently(client, action, wanted, dry_run=True).run_ids)
        if count > 1:
            confirm(f"{action.capitalize()} {count} runs?")
    result = _patiently(client, action, wanted, dry_run=dry_run)
    if as_json:
        typer.echo(document(result.model_dump(mode="json")))
        return
    typer.echo(_told(action, result))
    if dry_run:
        for run_id in result.run_ids:
            typer.echo(one_line(run_id))


def confirm(question: str) -> None:
    """Ask a person.

    Raises:
        Exit: 1, the answer is no.
    """
    if not typer.confirm(question, err=True):
        say("Nothing was done.")
        raise typer.Exit(1)


def _patiently(client: Palaver, action: RunAction, wanted: dict[str, Any], *, dry_run: bool) -> BulkResult:
    with Progress(lambda quiet: say(f"… going through the runs, {quiet:.0f} s so far")):
        return client.bulk(action, **wanted, dry_run=dry_run)


def _told(action: RunAction, result: BulkResult) -> str:
    count = len(result.run_ids)
    runs = f"{count} run{'' if count == 1 else 's'}"
    what = f"{runs} would be {_DONE[action]}" if result.dry_run else f"{_DONE[action]} {runs}"
    others = ", ".join(f"{number} {one_line(code)}" for code, number in result.skipped.items())
    return f"{what}; not: {others}" if others else what
