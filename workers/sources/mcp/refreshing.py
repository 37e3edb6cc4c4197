"""The list of a server's tools while a process lives: read again when the server says that it changed, when it has
become old, or when another process of this machine has read a newer one.

One process of a machine asks at a time. However often a server says that its list changed, it is asked once in a while,
and less and less often while each list is another one: all workers and the store keep what it says.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from .lists import OfferedList
from .server import Server, one_line
from .wire import InvalidAnswer, Lost, NeverSent, RequestRefused, RpcError

log = logging.getLogger("palaver.workers.sources.mcp.refreshing")

_LOOK: Final = 5.0
"""Seconds between two looks at what other processes have read."""
_APART: Final = 10.0
"""Seconds between two lists that a process asks for, whatever the server says; doubled by each that differs."""
_SLOWEST: Final = 3600.0
"""The most that they become."""
_RETRY: Final = 60.0
"""The same after one that did not come."""


class Refresher:
    """Keeps the list of one server fresh."""

    def __init__(self, server: Server, renewed: Callable[[], None]) -> None:
        """``renewed`` is called when its tools may be others."""
        self._server = server
        self._renewed = renewed
        self._not_before = time.monotonic() + _APART
        self._apart = _APART
        self._differed_at = -math.inf
        self._is_away = False

    async def run(self) -> None:
        """Look, again and again."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._server.changed.wait()
            rest = max(0.0, self._not_before - time.monotonic())
            await asyncio.sleep(min(_LOOK, rest) if self._server.changed.is_set() else 0)
            try:
                await self.look()
            except Exception:
                # The list of a stranger: whatever is wrong with it, the next one may be better.
                log.exception("[mcp.%s]: its list is not read again", self._server.label)
                self._not_before = time.monotonic() + _RETRY

    async def look(self) -> None:
        """Take the list that another process has read, or ask for it if it is time."""
        server = self._server
        known = server.last_list.read_if_new()
        if known is not None:
            if known.read_at >= server.changed_at:
                server.changed.clear()
            self._take(known)
        if not self._is_due() or time.monotonic() < self._not_before:
            return
        with server.last_list.turn() as is_ours:
            if is_ours:
                await self._ask()
            else:
                self._not_before = time.monotonic() + _LOOK

    def _is_due(self) -> bool:
        if self._server.changed.is_set():
            return True
        # A process is not started for its list: it says itself when that changed.
        asks = self._server.section.url is not None or self._server.connection.alive
        return asks and self._server.listed is not None and self._server.listed.is_old

    async def _ask(self) -> None:
        self._server.changed.clear()
        self._not_before = time.monotonic() + _APART
        try:
            listed = await self._server.read()
        except (NeverSent, RequestRefused, Lost, InvalidAnswer, RpcError, TimeoutError) as error:
            self._not_before = time.monotonic() + _RETRY
            if not self._is_away:
                reason = one_line(error, self._server.section.connect_timeout)
                log.warning("[mcp.%s]: its list is not read again: %s", self._server.label, reason)
            self._is_away = True
            return
        self._is_away = False
        self._take(listed)

    def _take(self, listed: OfferedList) -> None:
        if not self._server.renew(listed):
            self._apart = _APART
            return
        now = time.monotonic()
        was_quiet = now - self._differed_at > 2 * _SLOWEST
        self._apart = _APART if was_quiet else min(2 * self._apart, _SLOWEST)
        self._differed_at = now
        self._not_before = max(self._not_before, now + self._apart)
        self._renewed()
