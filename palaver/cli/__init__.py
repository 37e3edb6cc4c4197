"""``palaver``: submit, watch, decide on and stop runs from a shell, and start what serves them."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from palaver.config.exits import EX_CONFIG, refuse, written_out
from palaver.config.roles import PROGRAMS, ROLES, become, become_module, become_program

__all__ = ["main"]

_EXTRA: Final = ("rich", "typer")
_LOOK: Final = 0.5
"""Seconds that a Ctrl-C goes unseen at most, should it come between Python's last look for signals and a wait."""


def main() -> None:
    """The ``palaver`` command.

    Exits 0, 1 (the run did not complete, or you said no), 2 (usage, 4xx), 3 (no API) or 130 (Ctrl-C).
    A role of a server becomes its program, and exits as that does.
    """
    _open_streams()
    if os.environ.get("PALAVER_FEATURES") and sys.argv[1:2] not in (["worker"], ["tools"]):
        _require_features()
    if sys.argv[1:2] and sys.argv[1] in ROLES:
        become(sys.argv[1], sys.argv[2:])
    if sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        become_program(sys.argv[1], sys.argv[2:])
    command = _command()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A model may write what the terminal's encoding has no letter for.
            stream.reconfigure(errors="replace")
    if sys.platform == "win32":
        with written_out():
            command()
    else:
        # A signal ends any wait: Python looks which ones have come, and waits for the rest of the time.
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
        try:
            with written_out():
                command()
        finally:
            # Python takes its handlers back when it ends: the next alarm would kill what is left of the process.
            signal.setitimer(signal.ITIMER_REAL, 0)


def _require_features() -> None:
    """Raise SystemExit, with a sentence, for a PALAVER_FEATURES that does not fit. A worker does so itself, once what
    reads entry points is loaded for its work, too."""
    # Not above: most have no choice to look at.
    from palaver.feature import NoSuchFeature, entries

    try:
        entries()
    except NoSuchFeature as error:
        refuse(str(error), EX_CONFIG)


def _open_streams() -> None:
    """Give a process the standard streams that it was started without: it would open its first connections in their
    place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            place = os.open(os.devnull, os.O_RDWR)
            if place != number:
                os.dup2(place, number)
                os.close(place)
            # For the program that a role becomes.
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _command() -> Callable[[], object]:
    """Return the function to call for the words that were typed."""
    try:
        from palaver.cli.app import app, program_of
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        print(f"palaver: the command needs {error.name}: pip install 'palaver[cli]'", file=sys.stderr)
        sys.exit(2)
    if sys.argv[1:2] and (program := program_of(sys.argv[1])):
        become_module(program.name, program.module, sys.argv[2:])
    return app
