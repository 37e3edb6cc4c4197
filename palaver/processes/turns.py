"""A fair queue for work that very many want at the same moment: a few go on in each iteration of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """At most ``per_turn`` of those that wait go on in one iteration of the loop, in order. Behind each such iteration
    there are ``rest`` iterations that belong to others alone."""

    def __init__(self, per_turn: int, rest: int = 0) -> None:
        self._per_turn = self._left = per_turn
        self._rest = rest
        self._resting = 0
        """Iterations left in which none may go on."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._called = False

    async def take(self) -> None:
        """Wait for a turn, if others have had this one."""
        if self._left and not self._waiting:
            self._count()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._call()
        await turn

    def _count(self) -> None:
        self._left -= 1
        self._resting = self._rest
        self._call()

    def _call(self) -> None:
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._called = False
        if self._resting:
            self._resting -= 1
            self._call()
            return
        self._left = self._per_turn
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            # One that went away takes no turn.
            if not turn.done():
                turn.set_result(None)
                self._count()
        if self._waiting:
            self._call()
