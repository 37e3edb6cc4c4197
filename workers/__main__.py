"""Celery's worker and Flower as programs: what ``palaver worker``, ``tools`` and ``flower`` become.

``python -m workers -A APP worker …`` is ``celery -A APP worker …`` without the rest of Celery's command line. That one
imports all of its commands first, a prompt for terminals and Flower among them: 13 MB of each process, for nothing.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Final, NoReturn

import click
from celery.app.utils import find_app
from celery.exceptions import SecurityWarning

from palaver.processes.garbage import load_uncollected
from palaver.processes.left_out import left_out
from palaver.telemetry.logs import serve_json

# Celery colours what it shows of tasks where there is Pygments.
with left_out("pygments"):
    from celery.bin.base import CLIContext

_HOMES: Final[Mapping[str, str]] = {"worker": "celery.bin.worker", "flower": "flower.command"}
"""The module that has each command, under its name."""


class _Programs(click.Group):
    """Has one command: the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _HOMES:
            return None
        if cmd_name == "flower" and "--help" not in sys.argv:
            _look_at_redis()
            from .broker.flower_pages import prepare

            prepare()
        if cmd_name == "worker" and "--help" not in sys.argv:
            load_uncollected()
            _look_at_others()
        command: click.Command = getattr(import_module(_HOMES[cmd_name]), cmd_name)
        return command


def _look_at_others() -> None:
    """Before all else is loaded: this is the half of the proof that takes a second (ADR 0016)."""
    from palaver.store.fleet import first_look

    first_look.take()


def _look_at_redis() -> None:
    """Workers do so themselves, once they know what they are."""
    from palaver.config.exits import refusing
    from palaver.config.settings import settings
    from palaver.store.server.preflight import Preflight

    with refusing():
        preflight = Preflight(settings(), "flower")
        preflight.require()
    preflight.start()


@click.group(cls=_Programs)
@click.option("-A", "--app", required=True, help="The module that has the Celery app.")
@click.option("-C", "--no-color", envvar="NO_COLOR", is_flag=True)
@click.option("-q", "--quiet", is_flag=True, help="Without a banner.")
@click.pass_context
def _program(ctx: click.Context, app: str, no_color: bool, quiet: bool) -> None:
    ctx.obj = CLIContext(app=find_app(app), no_color=no_color, workdir=None, quiet=quiet)


def main() -> NoReturn:
    """Be the program. Its options may come from variables that begin with CELERY_, as Celery's own do."""
    # Deliveries are JSON with ids: what it warns root of, in eight lines before any other, cannot come.
    warnings.simplefilter("ignore", SecurityWarning)
    if serve_json():
        # Flower leaves its lines to this; a worker sets up its own.
        logging.getLogger().setLevel(logging.INFO)
    _program(auto_envvar_prefix="CELERY")
    raise SystemExit  # click has exited


if __name__ == "__main__":
    main()
