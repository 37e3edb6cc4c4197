"""The Typer application: every command, in the order in which the help lists them."""

from __future__ import annotations

from typing import Final

import typer

from palaver.cli import deciding, exporting, looking, running, steering, stopping
from palaver.cli.groups import ungrouped

app: Final = typer.Typer(
    name="palaver",
    help="Run agent conversations: submit, watch, decide, stop.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (
    running.run,
    running.watch,
    looking.list,
    looking.show,
    deciding.approve,
    deciding.deny,
    deciding.answer,
    steering.steer,
    steering.pause,
    steering.resume,
    stopping.cancel,
    stopping.retry,
    stopping.delete,
    exporting.export,
    looking.queues,
):
    app.command(_command.__name__)(ungrouped(_command))
