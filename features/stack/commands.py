"""``palaver up`` and ``palaver serve``. The process becomes the program of each: it stays for as long as what it
starts, in half the memory without what only other commands need."""

from __future__ import annotations

import os
import signal
from typing import Annotated, Final

import typer

from palaver.cli.commands import Command
from palaver.config.exits import refusing
from palaver.config.roles import become_module, require_server
from palaver.telemetry.logs import serve_json

from .surroundings import bring

_MOST: Final = 64


def up() -> None:
    """Start all of it on this machine until Ctrl-C: the API, workers, Flower, a Redis and a model server to play with.

    What ends is started again. PALAVER_PROVIDERS replaces the provider `fake`, PALAVER_REDIS_URL the Redis; ports and
    the data directory are settings, too.
    """
    _prepare("up")
    bring(os.environ)
    become_module("up", f"{__package__}.up", ())


def serve(
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, max=_MOST, help="Workers, each for model steps and tools.")
    ] = 1,
    redis_memory: Annotated[
        int | None,
        typer.Option("--redis-memory", metavar="MIB", min=16, help="What its own Redis may hold. [40 % of the memory]"),
    ] = None,
) -> None:
    """Serve from this machine: the API, and a worker for model steps and tools, until SIGTERM.

    Redis and the archive are in PALAVER_DATA_DIR (.palaver) unless PALAVER_REDIS_URL and PALAVER_ARCHIVE_URL say where
    else. What ends is started again. PALAVER_PROVIDERS is the file of models; PALAVER_HOST and PALAVER_API_PORT are
    where it listens.
    """
    # Process 1 of a container is not ended by a signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    serve_json()
    _prepare("serve")
    # Only here: it loads what a server has.
    from .serve_terms import arguments

    with refusing():
        words = arguments(workers, redis_memory)
        words += [f"--line={line}" for line in bring(os.environ)]
    become_module("serve", f"{__package__}.serving", words)


def _prepare(name: str) -> None:
    # The alarms of the command line would end it.
    signal.setitimer(signal.ITIMER_REAL, 0)
    require_server(f"palaver {name}")


COMMANDS: Final = (Command("up", up, after="usage"), Command("serve", serve, after="up"))
