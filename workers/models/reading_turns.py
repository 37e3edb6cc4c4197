"""The turns in which large pieces of answers are read, one after the other.

A MiB of JSON is parsed in one go, which takes the loop up to some 25 ms, and holds the interpreter's lock as long: no
thread helps. Many that come together would add up for everybody else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

LARGE: Final = 64 * 1024
"""Bytes of a piece from which on it is read in turn."""
_REST: Final = 2.0
"""Times that a turn took for which the next one waits: others have most of the loop."""


class ReadingTurns:
    """The turns of all answers that a process reads."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def read(self, size: int, act: Callable[[], T]) -> T:
        """Return what ``act`` makes of a piece of ``size`` bytes, or raise what it raises. A large one waits for its
        turn, and for a while after it no other large one is read."""
        if size < LARGE:
            return act()
        async with self._one:
            began_at = time.perf_counter()
            try:
                return act()
            finally:
                await asyncio.sleep(_REST * (time.perf_counter() - began_at))
