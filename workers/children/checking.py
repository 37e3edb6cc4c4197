"""A look at the tools before a tools worker has children: in a process like theirs, which ends then.

The worker's main process imports no code of users: all its children would have what that has done to it. So it would
start children again and again that cannot have their tools.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

from palaver.config.exits import presentable
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.tools import ToolSet

from ..sources import Toolbox, open_toolbox, read_ahead, sources_of
from . import environment

_PATIENCE: Final = 30.0
"""Seconds that opening the tools may take: as many as a child has for it."""
_SAID: Final = 16 * 1024
"""Characters of a message about a failure."""
_FOUND: Final = "found"
"""Before what was found, in what the process says that looks."""
_ENDED: Final = "PALAVER_TOOLS: a module ended its process when it was imported"


def check_tools(settings: Settings, hidden: frozenset[str]) -> ToolSet:
    """Open all tools once, in an environment without what is ``hidden``, as children do; return the facts about them.

    Raises:
        ConfigurationError: they cannot be opened.
    """
    with environment.narrowed(settings, hidden):
        read_ahead(settings)

    def look() -> str:
        return asyncio.run(_declared(open_toolbox(settings, sources_of(settings)))).text.decode()

    return ToolSet.having(looked_up(settings, hidden, look).encode())


def looked_up(settings: Settings, hidden: frozenset[str], look: Callable[[], str]) -> str:
    """Call ``look``, which imports tools, in a process like those of tools, which ends then; return what it returned.

    Raises:
        ConfigurationError: it raised that or something else, ended its process, or took too long.
    """
    reading, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _look_and_leave(settings, hidden, look, tell)
    os.close(tell)
    try:
        message = _heard(reading)
    finally:
        os.close(reading)
        for end in (os.kill, os.killpg):
            with suppress(ProcessLookupError, PermissionError):
                end(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    answer, _, text = message.partition(" ")
    if answer != _FOUND:
        raise ConfigurationError(message)
    return text


def _look_and_leave(settings: Settings, hidden: frozenset[str], look: Callable[[], str], tell: int) -> None:
    """The life of the process that looks: what it writes to ``tell`` is what it found, or why it could not look."""
    message = _ENDED
    try:
        os.setsid()
        environment.narrow(settings, hidden)
        message = f"{_FOUND} {look()}"
    except ConfigurationError as error:
        message = presentable(str(error))[:_SAID]
    except Exception as error:
        message = presentable(f"the tools cannot be opened: {type(error).__name__}: {error}")[:_SAID]
        print(presentable(traceback.format_exc()), file=sys.stderr, flush=True)
    finally:
        try:
            with open(tell, "wb", closefd=False) as pipe:
                pipe.write(message.encode(errors="replace") + b"\0")
        finally:
            # Whatever happens, this process must not go on as the worker that it is a copy of.
            os._exit(0)


async def _declared(opened: AbstractAsyncContextManager[Toolbox]) -> ToolSet:
    async with opened as tools:
        return ToolSet.of(tools.declarations)


def _heard(reading: int) -> str:
    """Return the message that the process sent before it ended."""
    received = b""
    while not received.endswith(b"\0"):
        if not select.select([reading], [], [], _PATIENCE)[0]:
            return f"PALAVER_TOOLS: importing the modules took longer than {_PATIENCE:g} s"
        data = os.read(reading, _SAID)
        if not data:
            return _ENDED
        received += data
    return received[:-1].decode(errors="replace")
