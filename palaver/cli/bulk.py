"""Many runs at once: which ones, whether that is meant, and what was done."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from palaver.cli.connection import Api, say
from palaver.cli.options import duration, one_of
from palaver.cli.progress import Progress
from palaver.cli.text import one_line
from palaver.client import BulkResult, Palaver
from palaver.client.requests import given
from palaver.errors import ErrorClass
from palaver.lifecycle import RunAction, RunStatus

_DONE: Final = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The options that say which runs: those that fit all that is given."""

    status: Annotated[
        list[RunStatus] | None,
        typer.Option("--status", "-s", metavar="STATUS", help="Only runs in this status; repeatable."),
    ] = None
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="Only runs of this conversation.")
    ] = None
    tag: Annotated[str | None, typer.Option("--tag", help="Only runs with this tag.")] = None
    agent_name: Annotated[str | None, typer.Option("--agent-name", help="Only runs of agents with this name.")] = None
    error_class: Annotated[
        Any,
        typer.Option(
            "--error-class",
            parser=one_of(ErrorClass),
            metavar="CLASS",
            help="Only runs that failed with this class, such as rate_limited.",
        ),
    ] = None
    older_than: Annotated[
        Any,
        typer.Option(
            "--older-than", parser=duration, metavar="TIME", help="Only runs submitted longer ago: 90s, 15m, 12h, 3d."
        ),
    ] = None

    @property
    def wanted(self) -> dict[str, Any]:
        """What is given but ``--older-than``, as arguments of `Palaver.list`."""
        return given(
            {
                "status": self.status or None,
                "conversation_id": self.conversation,
                "tag": self.tag,
                "agent": self.agent_name,
                "error_class": self.error_class,
            }
        )

    @property
    def before(self) -> datetime | None:
        """The time that ``--older-than`` means."""
        return None if self.older_than is None else datetime.now(UTC) - timedelta(seconds=self.older_than)


@dataclass(frozen=True, slots=True)
class ManyRuns(FilterOptions):
    """The same, of commands that do something to them."""

    everything: Annotated[
        bool, typer.Option("--all", help="Every run that it can be done to, in the place of a filter.")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which runs it would be.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether that is meant.")] = False

    def check(self, run_id: str | None) -> None:
        """Check that either one run is meant, or those of the filter, or all.

        Raises:
            BadParameter: not exactly one of the three is given, or a dry run of one.
        """
        if (run_id is not None) + bool(self._filter) + self.everything != 1:
            raise typer.BadParameter("which runs? Give one id, or a filter such as --tag, or --all")
        if run_id is not None and self.dry_run:
            raise typer.BadParameter("--dry-run goes with a filter, or with --all")

    def act(self, client: Palaver, action: RunAction, api: Api, **how: Any) -> None:
        """Do it to all runs that fit and that it can be done to; a person is asked before.

        Raises:
            Exit: 1, the person said no.
        """
        allowed = sorted(status for status in RunStatus if status.allows(action))
        wanted = {"status": allowed, **self._filter, **how}
        if not (self.dry_run or self.yes) and sys.stdin.isatty():
            count = len(_patiently(client, action, wanted, dry_run=True).run_ids)
            if count > 1:
                confirm(f"{action.capitalize()} {count} runs?")
        result = _patiently(client, action, wanted, dry_run=self.dry_run)
        ids = map(one_line, result.run_ids if self.dry_run else ())
        api.show(result, "\n".join((_told(action, result), *ids)))

    @property
    def _filter(self) -> dict[str, Any]:
        return {**self.wanted, **given({"older_than": self.older_than})}


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
