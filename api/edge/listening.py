"""The sockets at which this process listens: handed over by systemd, and left without losing a connection.

A socket that is handed over stays open in systemd while this process ends and the next one starts: who connects
meanwhile waits in the kernel, and is not refused.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

import uvicorn

from palaver.errors import ConfigurationError

from .descriptors import PacedListener

_FIRST: Final = 3
"""The file descriptor of the first one: sd_listen_fds(3)."""
_TURNS: Final = 4
"""Turns of asyncio's loop from the end of a connection's wait in the kernel until its protocol has it."""


def handed_over() -> list[PacedListener]:
    """Return the sockets that ``LISTEN_FDS`` counts, if ``LISTEN_PID`` is this process. Children do not see them.

    Raises:
        ConfigurationError: they are no TCP sockets that listen.
    """
    count, process = (os.environ.pop(name, "") for name in ("LISTEN_FDS", "LISTEN_PID"))
    if process != str(os.getpid()):
        return []
    if not (count.isascii() and count.isdecimal() and len(count) <= 3):
        raise ConfigurationError(f"LISTEN_FDS: {count[:80]!r} is no number of sockets")
    return [_listener(number) for number in range(_FIRST, _FIRST + int(count))]


def _listener(number: int) -> PacedListener:
    how = "say ListenStream=127.0.0.1:8080 in the .socket unit, or another address and port, and no Accept=yes"
    wrong = ConfigurationError(f"LISTEN_FDS: file descriptor {number} is no TCP socket that listens: {how}")
    try:
        listener = PacedListener(fileno=number)
    except OSError as error:
        raise wrong from error
    if listener.proto != socket.IPPROTO_TCP or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.close()
        raise wrong
    listener.set_inheritable(False)
    return listener


class LosslessServer(uvicorn.Server):
    """uvicorn's, which loses no connection when it ends."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and end once all that were taken are known.

        asyncio drops what it has accepted and not yet set up, and uvicorn tells only those to end that it knows.
        """
        loop = asyncio.get_running_loop()
        for each in sockets or ():
            loop.remove_reader(each)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await super().shutdown(sockets)
