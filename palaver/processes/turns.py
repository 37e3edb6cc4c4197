"""Turns of the event loop: work that very many want at the same moment is done a few at a time, with others in
between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """A line: ``per_turn`` of those in it may go on in a turn of the loop, and the others wait for later turns. Behind
    each such turn there are ``rest`` turns that belong to others alone."""

    def __init__(self, per_turn: int, rest: int = 0) -> None:
        self._per_turn = self._left = per_turn
        self._rest = rest
        self._resting = 0
        """The number of turns in which none may go on."""
        self._line: deque[Callable[[], bool]] = deque()
        self._called = False

    async def take(self) -> None:
        """Wait for a turn, if others have had this one."""
        waiting = asyncio.get_running_loop().create_future()

        def go_on() -> bool:
            if waiting.done():
                return False
            waiting.set_result(None)
            return True

        if not self.call(go_on):
            await waiting

    def call(self, act: Callable[[], bool]) -> bool:
        """Call ``act`` at once, or else in a later turn, and return False then. It returns whether there was something
        to do: if not, another one has its turn."""
        if self._left and not self._line:
            self._go_on(act())
            return True
        self._line.append(act)
        self._call()
        return False

    def _call(self) -> None:
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _go_on(self, went: bool) -> None:
        if went:
            self._left -= 1
            self._resting = self._rest
            self._call()

    def _begin(self) -> None:
        self._called = False
        if self._resting:
            self._resting -= 1
            self._call()
            return
        self._left = self._per_turn
        try:
            while self._line and self._left:
                self._go_on(self._line.popleft()())
        finally:
            if self._line:
                self._call()
