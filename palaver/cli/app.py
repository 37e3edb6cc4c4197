"""The Typer application: every command, in the order in which the help lists them."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from palaver.cli import conversations, deciding, exporting, looking, running, steering, stopping
from palaver.cli.groups import ungrouped
from palaver.cli.help_text import WholeHelp
from palaver.cli.up import up
from palaver.config.roles import PROGRAMS, ROLES
from palaver.version import __version__

_ROLES: Final = "\n".join(f"  {role:<10} {sentence}" for role, sentence in {**ROLES, **PROGRAMS}.items())
app: Final = typer.Typer(
    name="palaver",
    help="Run agent conversations: submit, watch, decide, stop.",
    epilog=f"\b\nOn a server (`palaver worker --help` has the options of a worker):\n{_ROLES}",
    cls=WholeHelp,
    no_args_is_help=True,
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
    steering.say,
    steering.withdraw,
    steering.fork,
    steering.pause,
    steering.resume,
    stopping.cancel,
    stopping.retry,
    stopping.delete,
    exporting.export,
    looking.models,
    looking.queues,
    up,
):
    app.command(_command.__name__)(ungrouped(_command))

_conversations: Final = typer.Typer(
    name="conversations",
    help="List, show, rename, tag and delete conversations.",
    cls=WholeHelp,
    no_args_is_help=True,
    rich_markup_mode=None,
)
for _name, _verb in (
    ("list", conversations.list_conversations),
    ("show", conversations.show_conversation),
    ("rename", conversations.rename),
    ("tag", conversations.tag),
    ("delete", conversations.delete_conversation),
):
    _conversations.command(_name)(ungrouped(_verb))
app.add_typer(_conversations)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"palaver {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it, and exit.")
    ] = False,
) -> None:
    """Without this Typer takes no option before a command."""
