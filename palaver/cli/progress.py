"""Signs of life on standard error when nothing happens for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

FIRST: Final = 5.0
"""Seconds of quiet before the first word; people begin to doubt after about ten."""
LONGEST: Final = 60.0
"""Seconds between two words at most; the pauses double in between."""


class Progress:
    """Calls ``say``, from a thread, with the seconds of quiet whenever `heard` was not called for a while."""

    def __init__(self, say: Callable[[float], None], *, first: float = FIRST) -> None:
        self._say = say
        self._first = first
        self._since = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def heard(self) -> None:
        """Something happened."""
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        self.heard()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        since, pause = self._since, self._first
        due = since + pause
        while not self._done.wait(max(due - time.monotonic(), 0.01)):
            if self._since != since:
                since, pause = self._since, self._first
                due = since + pause
            elif time.monotonic() >= due:
                self._say(time.monotonic() - since)
                pause = min(pause * 2, LONGEST)
                due += pause
