"""``palaver store``: a program of its own, which needs no API."""

from __future__ import annotations

from typing import Final

from palaver.cli.commands import Program

COMMANDS: Final = (
    Program(
        "store",
        "`palaver store copy` has the store at another server or cluster.",
        f"{__package__}.program",
        after="secrets",
    ),
)
