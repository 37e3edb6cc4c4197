"""The Typer application: every command, in the order in which the help lists them."""

from __future__ import annotations

from typing import Final

import typer

from palaver.cli import deciding, exporting, looking, running, steering, stopping

app: Final = typer.Typer(
    name="palaver",
    help="Run agent conversations: submit, watch, decide, stop.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(running.run)
app.command()(running.watch)
app.command("list")(looking.list_runs)
app.command()(looking.show)
app.command()(deciding.approve)
app.command()(deciding.deny)
app.command()(deciding.answer)
app.command()(steering.steer)
app.command()(steering.pause)
app.command()(steering.resume)
app.command()(stopping.cancel)
app.command()(stopping.retry)
app.command()(stopping.delete)
app.command()(exporting.export)
app.command()(looking.queues)
