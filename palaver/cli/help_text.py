"""The help of the command, with whole sentences, and names that lead to another one."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

_LONGEST: Final = 1_000
"""Characters of the sentence about a command."""
_LEADS: Final = {"runs": "list", "ls": "list"}
"""What people type first, and what they mean."""


class WholeHelp(TyperGroup):
    """Commands whose sentences are broken into lines, and not cut, where the terminal is narrow."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """As its base, or what the name leads to."""
        found = super().get_command(ctx, cmd_name)
        return found if found or ctx.parent else super().get_command(ctx, _LEADS.get(cmd_name, cmd_name))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """As its base, in more lines."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_LONGEST)) for name, command in commands])
