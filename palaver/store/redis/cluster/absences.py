"""Masters that do not answer: remembered, so that only the first who ask wait for one to come back."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

RESTS: Final = 1.0
"""Seconds for which a master is not asked that has been away for longer than any call waits."""


class Absences:
    """The masters that did not answer when they were asked last."""

    def __init__(self, patience: float, clock: Callable[[], float]) -> None:
        """One is waited for ``patience`` seconds, together by all who want something of it."""
        self._patience = patience
        self._clock = clock
        self._seen: dict[Hashable, tuple[float, float]] = {}
        """Since when it is away, and when it was asked last."""

    def note(self, master: Hashable) -> None:
        """It did not answer."""
        now = self._clock()
        since, _ = self._known(master) or (now, now)
        self._seen[master] = since, now

    def forget(self, master: Hashable) -> None:
        """It answers."""
        self._seen.pop(master, None)

    def is_away(self, master: Hashable) -> bool:
        """Tell whether it did not answer the last time."""
        return self._known(master) is not None

    def is_lasting(self, master: Hashable) -> bool:
        """Tell whether it has been away for so long that it is not waited for any more."""
        known = self._known(master)
        return known is not None and self._clock() >= known[0] + self._patience

    def may_ask(self, master: Hashable) -> bool:
        """Tell whether to ask it. Of those who find it away for long, one does now and then."""
        if not self.is_lasting(master):
            return True
        since, asked = self._seen[master]
        now = self._clock()
        if now < asked + RESTS:
            return False
        self._seen[master] = since, now
        return True

    def _known(self, master: Hashable) -> tuple[float, float] | None:
        """What is known of one that was asked lately."""
        seen = self._seen.get(master)
        return seen if seen is not None and self._clock() < seen[1] + 2 * self._patience else None
