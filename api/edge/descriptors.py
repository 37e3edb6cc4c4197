"""File descriptors: the number that a process has for connections, and a socket that does not take the last one.

asyncio accepts all that wait in the backlog at once, 2,048 of them, before it reports the first; and if there is no
descriptor left, a Python before June 2026 logs a traceback for each (python/cpython#151615).
"""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Final

LINGERING: Final = 32
"""Refused connections that stay open for a moment, for the reason to reach them."""
_AT_ONCE: Final = 2
"""Connections that are accepted in one turn of the event loop; each is known, or refused and gone, four turns later."""
_RESERVE: Final = 64 + LINGERING + 4 * _AT_ONCE + 32
"""The store's pool, the refused, those on their way in, and logs, broker, pub/sub, the listening socket, …"""


def capacity(needed: int) -> int:
    """Return the number of connections that this process may have: ``needed``, or fewer if its descriptors do not
    reach."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return needed if limit == resource.RLIM_INFINITY else max(1, min(needed, limit - _RESERVE))


class PacedListener(socket.socket):
    """A listening socket from which few connections are taken at a time; the others wait in the kernel.

    So a burst is served one after the other, too: heads are read between two handfuls.
    """

    _left = _AT_ONCE

    def accept(self) -> tuple[socket.socket, object]:
        """Return a connection.

        Raises:
            BlockingIOError: none waits, or enough were taken in this turn of the event loop.
        """
        if self._left == 0:
            raise BlockingIOError
        if self._left == _AT_ONCE:
            asyncio.get_running_loop().call_soon(self._refill)
        self._left -= 1
        return super().accept()

    def _refill(self) -> None:
        self._left = _AT_ONCE
