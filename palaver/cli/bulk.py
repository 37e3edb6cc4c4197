"""Many runs at once: the filter that selects them, the question whether that is meant, and the outcome."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from palaver.cli.connection import Api, QuietNotice, say
from palaver.cli.options import duration, entry, one_of, since
from palaver.cli.text import one_line
from palaver.client import BulkResult, Palaver
from palaver.client.requests.request import without_none
from palaver.errors import ErrorClass
from palaver.vocabulary.lifecycle import RunAction, RunStatus, StopReason

_DONE: Final = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The options that select runs: a run has to fit all that are set."""

    status: Annotated[
        list[RunStatus] | None,
        typer.Option("--status", "-s", metavar="STATUS", help="Only runs in this status; repeatable."),
    ] = None
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="Only runs of this conversation.")
    ] = None
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="RUN_ID", help="Only runs that calls of this run began.")
    ] = None
    tag: Annotated[str | None, typer.Option("--tag", help="Only runs with this tag.")] = None
    metadata: Annotated[
        list[Any] | None,
        typer.Option(
            "--metadata", parser=entry, metavar="KEY=VALUE", help="Only runs that have this in them; repeatable."
        ),
    ] = None
    submitted_by: Annotated[
        str | None,
        typer.Option("--submitted-by", metavar="NAME", help="Only runs that the key of this name submitted."),
    ] = None
    agent_name: Annotated[str | None, typer.Option("--agent-name", help="Only runs of agents with this name.")] = None
    provider: Annotated[str | None, typer.Option("--provider", help="Only runs that ask it, or asked it last.")] = None
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="PROVIDER/NAME", help="Only runs that ask it, or asked it last."),
    ] = None
    tool: Annotated[str | None, typer.Option("--tool", help="Only runs of agents that may use it.")] = None
    stop_reason: Annotated[
        Any,
        typer.Option(
            "--stop-reason",
            parser=one_of(StopReason),
            metavar="REASON",
            help="Only runs that ended for this reason, such as max_steps.",
        ),
    ] = None
    error_class: Annotated[
        Any,
        typer.Option(
            "--error-class",
            parser=one_of(ErrorClass),
            metavar="CLASS",
            help="Only runs that failed with this class, such as rate_limited.",
        ),
    ] = None
    error_code: Annotated[
        str | None, typer.Option("--error-code", metavar="CODE", help="Only runs that failed with this code.")
    ] = None
    retried: Annotated[
        bool | None,
        typer.Option("--retried/--not-retried", help="Only runs that another run goes on with, or none."),
    ] = None
    since: Annotated[
        Any,
        typer.Option("--since", parser=since, metavar="TIME", help="Only runs submitted later: 12h ago, or a date."),
    ] = None
    until: Annotated[
        Any, typer.Option("--until", parser=since, metavar="TIME", help="Only runs submitted before that.")
    ] = None
    ended_since: Annotated[
        Any, typer.Option("--ended-since", parser=since, metavar="TIME", help="Only runs that ended later.")
    ] = None
    ended_until: Annotated[
        Any, typer.Option("--ended-until", parser=since, metavar="TIME", help="Only runs that ended before that.")
    ] = None
    older_than: Annotated[
        Any,
        typer.Option(
            "--older-than", parser=duration, metavar="TIME", help="Only runs submitted longer ago: 90s, 15m, 12h, 3d."
        ),
    ] = None

    @property
    def conditions(self) -> dict[str, Any]:
        """The options that are set, but ``--older-than``, as arguments of `Palaver.list`."""
        return without_none(
            {
                "status": self.status or None,
                "stop_reason": self.stop_reason,
                "conversation_id": self.conversation,
                "parent": self.parent,
                "tag": self.tag,
                "metadata": dict(self.metadata) if self.metadata else None,
                "submitted_by": self.submitted_by,
                "agent": self.agent_name,
                "provider": self.provider,
                "model": self.model,
                "tool": self.tool,
                "error_class": self.error_class,
                "error_code": self.error_code,
                "retried": self.retried,
                "created_after": self.since,
                "created_before": self.until,
                "ended_after": self.ended_since,
                "ended_before": self.ended_until,
            }
        )

    @property
    def listed(self) -> dict[str, Any]:
        """All options that are set, as arguments of `Palaver.list`."""
        if self.older_than is None:
            return self.conditions
        before = datetime.now(UTC) - timedelta(seconds=self.older_than)
        return {**self.conditions, "created_before": min(before, self.until or before)}


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
        arguments = {"status": allowed, **self._filter, **how}
        if not (self.dry_run or self.yes) and sys.stdin.isatty():
            count = _patiently(client, action, arguments, dry_run=True).able
            if count > 1:
                confirm(f"{action.capitalize()} {count} runs?")
        result = _patiently(client, action, arguments, dry_run=self.dry_run)
        api.show(result, "\n".join((_summary(action, result), *_named(action, result))))

    @property
    def _filter(self) -> dict[str, Any]:
        return {**self.conditions, **without_none({"older_than": self.older_than})}


def confirm(question: str) -> None:
    """Ask a person.

    Raises:
        Exit: 1, the answer is no.
    """
    if not typer.confirm(question, err=True):
        say("Nothing was done.")
        raise typer.Exit(1)


def _patiently(client: Palaver, action: RunAction, arguments: dict[str, Any], *, dry_run: bool) -> BulkResult:
    with QuietNotice(lambda quiet: say(f"… going through the runs, {quiet:.0f} s so far")):
        return client.bulk(action, **arguments, dry_run=dry_run)


def _summary(action: RunAction, result: BulkResult) -> str:
    runs = f"{result.able} run{'' if result.able == 1 else 's'}"
    what = f"{runs} would be {_DONE[action]}" if result.dry_run else f"{_DONE[action]} {runs}"
    others = ", ".join(f"{number} {one_line(code)}" for code, number in result.skipped.items())
    return f"{what}; not: {others}" if others else what


def _named(action: RunAction, result: BulkResult) -> Iterator[str]:
    """The runs that it would be, or the new ones beside the old: the first hundred."""
    if not (result.dry_run or action == "retry"):
        return
    for run_id in result.run_ids:
        new = result.retried_as.get(run_id)
        yield one_line(run_id if new is None else f"{new} goes on with {run_id}")
    if (more := result.able - len(result.run_ids)) > 0:
        yield f"and {more} more"
