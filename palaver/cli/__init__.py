"""``palaver``: submit, watch, decide on and stop runs from a shell."""

from __future__ import annotations

import io
import sys

from palaver.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """The ``palaver`` command.

    Exits 0, 1 (the run did not complete, or you said no), 2 (usage, 4xx), 3 (no API) or 130 (Ctrl-C).
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A model may write what the terminal's encoding has no letter for.
            stream.reconfigure(errors="replace")
    app()
