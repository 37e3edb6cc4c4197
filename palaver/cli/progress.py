"""Signs of life on standard error when nothing happens for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

FIRST: Final = 5.0
"""Seconds of quiet before the first word, which comes at most as long again later: within ten, doubt begins."""
LONGEST: Final = 60.0
"""Seconds between two words, about, at most; the pauses double until then."""


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
        since, threshold = self._since, self._first
        while not self._done.wait(self._first):
            if self._since != since:
                since, threshold = self._since, self._first
            quiet = time.monotonic() - since
            if quiet >= threshold:
                self._say(quiet)
                threshold = quiet + min(quiet, LONGEST)
