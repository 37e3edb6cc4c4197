"""A clock that a test turns."""

from __future__ import annotations

from typing import Final

START: Final = 1_000_000.0


class Clock:
    """Stands in for the module ``time`` that fakeredis reads its clock from."""

    def __init__(self) -> None:
        self.now = START

    def time(self) -> float:
        return self.now
