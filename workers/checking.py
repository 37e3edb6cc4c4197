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
from contextlib import suppress
from typing import Final

from palaver.errors import ConfigurationError
from palaver.exits import presentable
from palaver.settings import Settings
from palaver.tools import ToolSet

from . import environment
from .sources import SOURCES, open_toolbox

_PATIENCE: Final = 30.0
"""Seconds that opening the tools may take: as many as a child has for it."""
_SAID: Final = 16 * 1024
"""Bytes of what is said of a failure; a pipe takes them at once."""


def check_tools(settings: Settings, hidden: frozenset[str]) -> None:
    """Open all tools once, in an environment without what is ``hidden``, as children do.

    Raises:
        ConfigurationError: they cannot be opened.
    """
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _open_and_leave(settings, hidden, tell)
    os.close(tell)
    try:
        said = _heard(told)
    finally:
        os.close(told)
        for end in (os.kill, os.killpg):
            with suppress(ProcessLookupError, PermissionError):
                end(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if said:
        raise ConfigurationError(said)


def _open_and_leave(settings: Settings, hidden: frozenset[str], tell: int) -> None:
    """The life of the process that looks: what it writes to ``tell`` is why the tools cannot be opened."""
    said = "PALAVER_TOOLS: a module ended its process when it was imported"
    try:
        os.setsid()
        environment.narrow(settings, hidden)
        asyncio.run(_open(settings))
        said = ""
    except ConfigurationError as error:
        said = str(error)
    except Exception as error:
        said = f"the tools cannot be opened: {type(error).__name__}: {error}"
        print(presentable(traceback.format_exc()), file=sys.stderr, flush=True)
    finally:
        try:
            os.write(tell, presentable(said).encode(errors="replace")[:_SAID] + b"\0")
        finally:
            # Whatever happens, this process must not go on as the worker that it is a copy of.
            os._exit(0)


async def _open(settings: Settings) -> None:
    async with open_toolbox(settings, SOURCES) as tools:
        ToolSet.of(tools.declarations)


def _heard(told: int) -> str:
    """What the process said before it ended."""
    found = b""
    while not found.endswith(b"\0"):
        if not select.select([told], [], [], _PATIENCE)[0]:
            return f"PALAVER_TOOLS: importing the modules took longer than {_PATIENCE:g} s"
        data = os.read(told, _SAID)
        if not data:
            return "PALAVER_TOOLS: a module ended its process when it was imported"
        found += data
    return found[:-1].decode(errors="replace")
