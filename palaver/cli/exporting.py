"""``palaver export``: runs and conversations as lines of JSON, before their retention is over."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from palaver.cli.bulk import FilterOptions
from palaver.cli.connection import ApiAddress, QuietNotice, say
from palaver.cli.options import duration
from palaver.cli.text import document
from palaver.client import ClientError, Exported, Palaver
from palaver.client.backoff import passing
from palaver.client.exported import SCHEMA
from palaver.vocabulary.lifecycle import RunStatus

_WHOLE: Final = ("run", "conversation")
"""Records behind which nothing is missing of what came before."""
_START: Final = b'{"schema": '
_UNFINISHED: Final = tuple(status for status in RunStatus if not status.terminal)
_TICK: Final = timedelta(milliseconds=1)


def export(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN_ID|CONVERSATION_ID]...", help="What to export; nothing with a filter or --all."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every run that has ended, in the place of a filter.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Add to this file what it does not have yet.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with runs as they end, until Ctrl-C.")] = False,
    every: Annotated[
        Any, typer.Option("--every", parser=duration, metavar="TIME", help="With --follow: between two looks.")
    ] = "10s",
    *,
    filters: FilterOptions,
    connection: ApiAddress,
) -> None:
    """Write all that is known of runs that have ended, and their conversations, as lines of JSON."""
    conditions = filters.listed
    if bool(ids) + bool(conditions) + everything != 1:
        raise typer.BadParameter("which runs? Give ids, or a filter such as --since, or --all")
    if ids and follow:
        raise typer.BadParameter("--follow goes with a filter, or with --all")
    with connection.connected() as client, _archive(to) as archive:

        def look(oldest: datetime | None) -> None:
            with QuietNotice(lambda quiet: say(f"… exporting, {archive.runs} runs and {quiet:.0f} s so far")):
                for record in client.export(
                    *(ids or ()), **{**conditions, "created_after": oldest}, exported=archive.known
                ):
                    archive.write(record)
                archive.keep()

        if follow:
            _follow(client, look, filters.since, every)
        else:
            look(filters.since)
        say(f"exported {archive.runs} run{'' if archive.runs == 1 else 's'}{f' to {to}' if to else ''}")


class Archive:
    """Lines of JSON, and what they say already."""

    def __init__(self, file: BinaryIO, known: Exported) -> None:
        self.known = known
        self.runs = 0
        """Written by now."""
        self._file = file

    def write(self, record: Mapping[str, Any]) -> None:
        """One more line."""
        self._file.write(document(record).encode() + b"\n")
        if record["kind"] in _WHOLE:
            self.runs += record["kind"] == "run"
            self._file.flush()

    def keep(self) -> None:
        """Make what was written outlive the machine, if it goes to a file."""
        self._file.flush()
        if self._file is not sys.stdout.buffer:
            os.fsync(self._file.fileno())


@contextmanager
def _archive(to: Path | None) -> Iterator[Archive]:
    """The archive at ``to``, or one on standard output.

    Raises:
        BadParameter: there is something else at ``to``, or nothing can be.
    """
    if to is None:
        yield Archive(sys.stdout.buffer, Exported())
        return
    try:
        file = to.open("a+b")
    except OSError as error:
        raise typer.BadParameter(f"--to {to}: {error.strerror}") from None
    with file:
        yield Archive(file, _read(file, to))


def _read(file: BinaryIO, path: Path) -> Exported:
    """Read what the file has. The unfinished end of an export that broke off is cut off: it comes again.

    Raises:
        BadParameter: the file is no export.
    """
    known, whole, position = Exported(), 0, 0
    begun: list[dict[str, Any]] = []
    file.seek(0)
    for line in file:
        try:
            record = json.loads(line)
            ours = record["schema"] == SCHEMA
        except (ValueError, KeyError, TypeError):
            record, ours = {}, _START.startswith(line[: len(_START)]) and not line.endswith(b"\n")
        if not ours:
            raise typer.BadParameter(f"--to {path}: there is something else in it than an export")
        position += len(line)
        if record.get("kind") in (*_WHOLE, "message"):
            begun.append(record)
        if record.get("kind") in _WHOLE:
            for entry in begun:
                known.add(entry)
            whole, begun = position, []
    file.truncate(whole)
    return known


def _follow(client: Palaver, look: Callable[[datetime | None], None], oldest: datetime | None, every: float) -> None:
    """Look again and again, each time back to the oldest run that had not ended the last time."""
    while True:
        try:
            unfinished = _oldest_unfinished(client, oldest)
            look(oldest)
            oldest = unfinished
        except ClientError as error:
            if not passing(error):
                raise
            say(f"… trying to reach the API again ({error})")
        except KeyboardInterrupt:
            return
        try:
            time.sleep(every)
        except KeyboardInterrupt:
            return


def _oldest_unfinished(client: Palaver, after: datetime | None) -> datetime | None:
    """A time such that all runs which were submitted before it have ended; ``after`` is an earlier one."""
    moment = after
    for run in client.list(created_after=after, limit=1):
        moment = run.times.created_at - _TICK
    for run in client.list(status=_UNFINISHED, created_after=after):
        moment = run.times.created_at - _TICK
    return moment
