"""``palaver batch``: agents over many inputs, with a live table, and the results as a file."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic_core import to_jsonable_python
from rich.live import Live
from rich.table import Table

from palaver.cli import options
from palaver.cli.commands import CommandGroup
from palaver.cli.connection import Api, ApiAddress, say
from palaver.cli.doing import lacked
from palaver.cli.layout import print_list
from palaver.cli.tables import console, since
from palaver.cli.text import plain
from palaver.client import Palaver
from palaver.config.text_files import read_text_file
from palaver.schemas.batches import Batch, BatchResult
from palaver.schemas.cells import as_cell

BatchId = Annotated[str, typer.Argument(metavar="BATCH_ID", help="The batch, as `palaver batch list` shows it.")]
_EVERY: Final = 2.0
"""Seconds between two looks."""
_FAILED: Final = 1
_ENDED: Final = ("done", "cancelled", "failed")


def run(
    cases: Annotated[
        str,
        typer.Argument(metavar="FILE", help="JSONL: texts, or objects with input, id, expected; - reads it."),
    ],
    agent: Annotated[
        list[Any],
        typer.Option(
            "--agent",
            "-a",
            parser=options.agent,
            metavar="JSON|NAME",
            help="A whole agent, or @FILE, or the name of one on the server; repeatable: to compare them.",
        ),
    ],
    repeats: Annotated[int | None, typer.Option("--repeats", "-r", min=1, help="Ask each so often.")] = None,
    scorer: Annotated[
        Any,
        typer.Option("--scorer", parser=options.agent, metavar="JSON|NAME", help="An agent that judges each answer."),
    ] = None,
    window: Annotated[int | None, typer.Option("--window", min=1, help="Runs that are unfinished at once.")] = None,
    budget: options.Budget = None,
    name: Annotated[str | None, typer.Option("--name", help="Your name for it.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where the results go: .csv, or lines of JSON."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for its end.")] = False,
    *,
    api: Api,
) -> None:
    """Run agents on every case of a file, and watch: 0 if all completed and passed, 1 if not."""
    chosen: dict[str, Any] = {
        "repeats": repeats,
        "scorer": scorer,
        "window": window,
        "budget": dict(budget or ()) or None,
        "name": name,
    }
    with api.connected() as client:
        batch = client.create_batch(
            agent, [*_cases(cases)], **{name: value for name, value in chosen.items() if value is not None}
        )
        if detach:
            api.show(batch, batch.id)
            return
        say(f"{batch.id}: {batch.cells} runs. Ctrl-C leaves it to itself.")
        _end(api, client, _watched(client, batch, live=not api.as_json), output)


def watch(
    batch_id: BatchId,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where the results go: .csv, or lines of JSON."),
    ] = None,
    *,
    api: Api,
) -> None:
    """Watch a batch to its end: 0 if all completed and passed, 1 if not."""
    with api.connected() as client:
        _end(api, client, _watched(client, client.batch(batch_id), live=not api.as_json), output)


def list_batches(api: Api) -> None:
    """List the batches, the newest first."""
    with api.connected() as client:
        batches = [*client.batches()]
    to = console()
    rows = [
        (each.id, each.state, f"{each.ended}/{each.cells}", since(to, each.created_at), each.name or "")
        for each in batches
    ]
    columns = ("BATCH", "STATE", "ENDED", "CREATED", "NAME")
    api.show(batches, lambda: print_list(to, columns, rows, texts=1) if rows else say("No batches."))


def show(batch_id: BatchId, api: Api) -> None:
    """Show one batch: what came of the runs of each agent."""
    with api.connected() as client:
        batch = client.batch(batch_id)
    api.show(batch, lambda: _show(batch))


def results(
    batch_id: BatchId,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A file: .csv, or lines of JSON [default: lines of JSON]."),
    ] = None,
    *,
    api: ApiAddress,
) -> None:
    """Write what came of each run."""
    with api.connected() as client:
        _write(client.batch_results(batch_id), output)


def cancel(batch_id: BatchId, api: Api) -> None:
    """Begin nothing more of a batch, and cancel what is under way."""
    with api.connected() as client:
        batch = client.cancel_batch(batch_id)
    api.show(batch, f"{batch_id} is {batch.state}")


def retry(batch_id: BatchId, api: Api) -> None:
    """Begin again what has failed."""
    with api.connected() as client:
        batch = client.retry_batch(batch_id)
    api.show(batch, f"{batch_id} is {batch.state}")


def delete(
    batch_id: BatchId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    *,
    api: Api,
) -> None:
    """Remove a batch that has ended, with its results; its runs stay."""
    with api.connected() as client:
        if not yes and not api.as_json:
            typer.confirm(f"Remove the batch {batch_id}?", abort=True, err=True)
        client.delete_batch(batch_id)
    api.show({"deleted": batch_id}, f"deleted {batch_id}")


def _cases(path: str) -> Iterator[Any]:
    """The cases of a file: a line that is no JSON is refused, and one that is empty is none."""
    try:
        text = options.text_or_stdin("-") if path == "-" else read_text_file(path)
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}") from None
    # JSON may have other ends of lines within a text.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
        except ValueError as error:
            raise typer.BadParameter(f"{path}, line {number}: {error}") from None
        if not isinstance(case, str | dict):
            raise typer.BadParameter(f"{path}, line {number}: a case is a text or an object")
        yield case


def _watched(client: Palaver, batch: Batch, *, live: bool) -> Batch:
    """Look at a batch until it has ended; show how far it is, on a terminal."""
    if not (live and console().is_terminal):
        while batch.state not in _ENDED:
            time.sleep(_EVERY)
            batch = client.batch(batch.id)
        return batch
    with Live(_table(batch), console=console(), refresh_per_second=4) as shown:
        while batch.state not in _ENDED:
            time.sleep(_EVERY)
            batch = client.batch(batch.id)
            shown.update(_table(batch))
    return batch


def _end(api: Api, client: Palaver, batch: Batch, output: Path | None) -> None:
    if output is not None:
        _write(client.batch_results(batch.id), output)
    api.show(batch, lambda: None if console().is_terminal else _show(batch))
    missed = any(total.passed < total.scored for total in batch.totals)
    completed = sum(total.ended.get("completed", 0) for total in batch.totals)
    if missed or batch.reason or completed < batch.cells:
        raise typer.Exit(_FAILED)


_COLUMNS: Final = ("AGENT", "COMPLETED", "OTHER", "PASSED", "COST", "TOKENS", "SECONDS")


def _rows(batch: Batch) -> Iterator[Sequence[str]]:
    for total in batch.totals:
        completed = total.ended.get("completed", 0)
        others = (f"{number} {status}" for status, number in total.ended.items() if status != "completed")
        cost = "" if total.cost_usd is None else f"${total.cost_usd:.4f}"
        passed = f"{total.passed}/{total.scored}" if total.scored else ""
        tokens, seconds = str(total.input_tokens + total.output_tokens), f"{total.seconds:.1f}"
        yield plain(total.agent), str(completed), ", ".join(others), passed, cost, tokens, seconds


def _show(batch: Batch) -> None:
    say(_progress(batch))
    print_list(console(), _COLUMNS, _rows(batch))


def _table(batch: Batch) -> Table:
    table = Table(title=_progress(batch), title_justify="left")
    for name in _COLUMNS:
        table.add_column(name)
    for row in _rows(batch):
        table.add_row(*row)
    return table


def _progress(batch: Batch) -> str:
    runs = f"{batch.ended} of {batch.cells} runs have ended, {batch.in_flight} are under way"
    more = (batch.reason, lacked(batch.waiting.code or "") if batch.waiting else None)
    return ". ".join([f"{batch.id} is {batch.state}: {runs}", *filter(None, more)])


def _write(results: Iterator[BatchResult], output: Path | None) -> None:
    if output is None:
        for result in results:
            typer.echo(json.dumps(to_jsonable_python(result)))
        return
    if output.suffix != ".csv":
        with output.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(to_jsonable_python(result)) + "\n" for result in results)
        return
    with output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*BatchResult.model_fields])
        writer.writeheader()
        for result in results:
            row = result.model_dump(mode="json")
            writer.writerow({name: as_cell(value) for name, value in row.items()})


COMMANDS: Final = (
    CommandGroup(
        "batch",
        "Run agents on many inputs: run, watch, list, show, cancel, retry and delete batches, and write their results.",
        {
            "run": run,
            "watch": watch,
            "list": list_batches,
            "show": show,
            "results": results,
            "cancel": cancel,
            "retry": retry,
            "delete": delete,
        },
        after="agents",
    ),
)
