"""How far a model call is."""

from __future__ import annotations

import time
from dataclasses import dataclass

from palaver.steps.leases import AnswerProgress


@dataclass(slots=True)
class CallProgress:
    """How far a model call is, while it goes on. Where it runs it is written, where leases are renewed it is told."""

    received: int = 0
    """Bytes."""
    characters: int = 0
    """Of text."""
    first_after: float | None = None
    """Seconds from the call to the first of the answer; None before that."""
    came_at: float = 0.0
    """When the last of it came, or the call began (monotonic, as the next)."""
    ends_at: float | None = None
    """When the call is given up, unless more comes; None before it begins."""

    def now(self) -> AnswerProgress | None:
        """As the store is told; None if there is nothing to tell."""
        if self.ends_at is None:
            return None
        now = time.monotonic()
        return AnswerProgress(self.received, self.characters, now - self.came_at, self.ends_at - now)
