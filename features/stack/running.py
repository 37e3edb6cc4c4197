"""The life of the process that a stack is below: it starts all of it, and again what ends, until a signal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

from palaver.config.exits import refuse
from palaver.config.roles import wait_for_redis

from .errors import StackError
from .stack import Stack
from .stalls import Stalls
from .supervision import Supervisor

_ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK: Final = 0.5
"""Seconds between two looks for what has ended."""


def keep_running(stack: Stack, redis_url: str | None, ready: Callable[[], None], report: Callable[[str], None]) -> None:
    """Start the stack, once there is a Redis at ``redis_url``, if that is given, and call ``ready``. Return after a
    signal, when everything has ended. Raises SystemExit, with a sentence, if the stack cannot run."""
    for ending in _ENDINGS:
        signal.signal(ending, _interrupt)
    try:
        if redis_url:
            wait_for_redis(redis_url)
        with stack:
            ready()
            supervisor = Supervisor(stack.processes, report, time.monotonic())
            stalls = Stalls(stack.children, report)
            while True:
                supervisor.look(time.monotonic())
                stalls.look(time.monotonic())
                time.sleep(_LOOK)
    except StackError as error:
        refuse(str(error), error.status)
    except KeyboardInterrupt:
        report("stopped")


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    # From here on nothing may cut the shutdown short: make forwards the signal a second time.
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt
