"""``palaver archive``: a program of its own, which needs no API."""

from __future__ import annotations

from typing import Final

from palaver.cli.commands import Program

COMMANDS: Final = (
    Program(
        "archive",
        "`palaver archive status` says what the archive has and lacks; `verify`, `backfill`, `restore` and `migrate` "
        "follow.",
        f"{__package__}.program",
        after="secrets",
    ),
)
