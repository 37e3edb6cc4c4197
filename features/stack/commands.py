"""``palaver up``, which the process becomes: it stays for as long as what it starts, in half the memory without what
only other commands need."""

from __future__ import annotations

import signal
from typing import Final

from palaver.cli.commands import Command
from palaver.config.roles import become_module


def up() -> None:
    """Start all of it on this machine until Ctrl-C: the API, workers, Flower, a Redis and a model server to play with.

    What ends is started again. PALAVER_PROVIDERS replaces the provider `fake`, PALAVER_REDIS_URL the Redis; ports and
    the data directory are settings, too.
    """
    # The alarms of the command line would end it.
    signal.setitimer(signal.ITIMER_REAL, 0)
    become_module("up", f"{__package__}.up", ())


COMMANDS: Final = (Command("up", up, after="usage"),)
