"""Turns of the event loop: work that very many want at the same moment is done a few at a time, with others in
between."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """A line: ``per_turn`` of those in it may go on in each turn of the loop, and the others wait for later turns."""

    def __init__(self, per_turn: int) -> None:
        self._per_turn = self._left = per_turn
        self._line: deque[asyncio.Future[None]] = deque()
        self._called = False

    async def take(self) -> None:
        """Wait for a turn, if others have had this one."""
        if self._left and not self._line:
            self._left -= 1
            self._call()
            return
        waiting = asyncio.get_running_loop().create_future()
        self._line.append(waiting)
        self._call()
        await waiting

    def _call(self) -> None:
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._called, self._left = False, self._per_turn
        while self._line and self._left:
            waiting = self._line.popleft()
            if not waiting.done():
                waiting.set_result(None)
                self._left -= 1
        if self._line or self._left < self._per_turn:
            self._call()
