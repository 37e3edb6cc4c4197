"""The Typer application: every command, in the order in which the help lists them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, get_type_hints

import typer
from typer.core import TyperGroup

from palaver.cli import acting, agents, conversations, deciding, exporting, looking, running
from palaver.cli.commands import Command, CommandGroup, Program
from palaver.config.roles import PROGRAMS, ROLES
from palaver.feature import brought, put_behind
from palaver.version import __version__

_LONGEST: Final = 1_000
"""Characters of the sentence about a command."""
_LEADS: Final = {"runs": "list", "ls": "list"}
"""Commands that people mean, by the words that they type first."""


class WholeHelp(TyperGroup):
    """Commands whose sentences are broken into lines, and not cut, where the terminal is narrow."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """As its base, in more lines."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_LONGEST)) for name, command in commands])


class _AllCommands(WholeHelp):
    """The commands of the core, and those of features: these are imported when one is asked for, or the help."""

    _whole = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """As its base, or what the name leads to."""
        name = _LEADS.get(cmd_name, cmd_name)
        if name not in self.commands:
            self._add_features()
        return super().get_command(ctx, name)

    def list_commands(self, ctx: Any) -> list[str]:
        """As its base."""
        self._add_features()
        return super().list_commands(ctx)

    def _add_features(self) -> None:
        if self._whole:
            return
        self._whole = True
        commands, programs = [*self.commands], {**ROLES, **PROGRAMS}
        listed = [*programs]
        for each in _of_features():
            names = listed if isinstance(each, Program) else commands
            if each.name in (*commands, *listed):
                raise ValueError(f"two features, or one and the core, have a command {each.name}")
            put_behind(names, each.name, each.after)
            if isinstance(each, Program):
                programs[each.name] = each.about
            elif isinstance(each, Command):
                self.commands[each.name] = _single(each)
            else:
                self.commands[each.name] = typer.main.get_group(_grouped(each))
        self.commands = {name: self.commands[name] for name in commands}
        lines = "\n".join(f"  {name:<10} {programs[name]}" for name in listed)
        self.epilog = f"\b\nOn a server (`palaver worker --help` has the options of a worker):\n{lines}"


def _of_features() -> Iterator[Command | CommandGroup | Program]:
    for each in brought("commands"):
        yield from each


def program_of(word: str) -> Program | None:
    """Return the program of a feature that a word names; None if it names a command of the core, or an option."""
    if word.startswith("-") or word in _LEADS or word in _NAMES:
        return None
    return next((each for each in _of_features() if isinstance(each, Program) and each.name == word), None)


def ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` as Typer takes it: in the place of each argument that is a group, the options of the group."""
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    kinds = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind = kinds[name]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            groups[name] = kind
            options = get_type_hints(kind, include_extras=True)
            fields = dataclasses.fields(kind)
            parameters += [_option(field.name, options[field.name], field.default) for field in fields]
        else:
            parameters.append(_option(name, kind, parameter.default))

    @functools.wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
        command(**values)

    del call.__dict__["__wrapped__"]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _option(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


app: Final = typer.Typer(
    name="palaver",
    help="Run agent conversations: submit, watch, decide, stop.",
    cls=_AllCommands,
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
    acting.steer,
    acting.say,
    acting.withdraw,
    acting.fork,
    acting.pause,
    acting.resume,
    acting.cancel,
    acting.retry,
    acting.delete,
    exporting.export,
    looking.models,
    looking.queues,
    looking.usage,
):
    app.command(_command.__name__)(ungrouped(_command))


def _single(command: Command) -> Any:
    made = typer.Typer(rich_markup_mode=None, add_completion=False)
    made.command(command.name)(ungrouped(command.command))
    return typer.main.get_command(made)


def _grouped(group: CommandGroup) -> typer.Typer:
    made = typer.Typer(name=group.name, help=group.about, cls=WholeHelp, no_args_is_help=True, rich_markup_mode=None)
    for verb, command in group.verbs.items():
        made.command(verb)(ungrouped(command))
    return made


_GROUPS: Final = (
    CommandGroup(
        "conversations",
        "List, show, rename, tag and delete conversations.",
        {
            "list": conversations.list_conversations,
            "show": conversations.show_conversation,
            "rename": conversations.rename,
            "tag": conversations.tag,
            "delete": conversations.delete_conversation,
        },
    ),
    CommandGroup(
        "agents",
        "Keep agents on the server: put, list, show and delete them.",
        {"put": agents.put, "list": agents.list_agents, "show": agents.show, "delete": agents.delete},
    ),
)
for _group in _GROUPS:
    app.add_typer(_grouped(_group))
_NAMES: Final = frozenset([*(each.name for each in app.registered_commands), *(group.name for group in _GROUPS)])
"""The commands of the core."""


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"palaver {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it, and exit.")
    ] = False,
) -> None:
    """Without this Typer takes no option before a command."""
