"""Log lines about an outage: one a second for what hundreds of steps run into together."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Final

_EVERY: Final = 1.0
"""Seconds between two lines."""
_TOGETHER: Final = 0.05
"""Seconds in which what fails at the same moment comes together, before the first line."""
_LONGEST: Final = 200
"""Characters of what a server says."""
_FIRST_WORD: Final = re.compile(r"-?([A-Z][A-Z0-9]+)\b")
"""An error of Redis begins with its kind, such as ``MISCONF``; a script passes it on as ``-MISCONF``."""


class OutageLog:
    """Counts the things that cannot be done now, and writes one line a second about them.

    ``sentence`` has a place for how many there are and what they are: ``cannot settle %s yet``. A thing that is tried
    again and again counts once a line.
    """

    def __init__(self, log: logging.Logger, sentence: str, thing: str) -> None:
        self._log = log
        self._sentence = sentence
        self._thing = thing
        self._names: set[str] = set()
        self._why = ""
        self._wrote_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def add(self, name: str, why: str) -> None:
        """Note that ``name`` could not be done, and why. The line is there within a second."""
        self._names.add(name)
        self._why = why
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(_TOGETHER, self._wrote_at + _EVERY - loop.time()), self._write, loop)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        names, self._names, self._timer = self._names, set(), None
        self._wrote_at = loop.time()
        one = min(names)
        counted = f"{self._thing} {one}" if len(names) == 1 else f"{len(names)} {self._thing}s ({one} is one)"
        self._log.warning(self._sentence, counted, self._why, extra={"fields": {"count": len(names)}})


def outage_reason(error: BaseException) -> str:
    """The kind of an error and what the server says: ``MISCONF Errors writing to the AOF file``.

    The first word of what Redis answers, which its client takes off some answers, or else the name of the class.
    """
    message = " ".join(str(error).split())[:_LONGEST]
    if _FIRST_WORD.match(message):
        return message.removeprefix("-")
    word = getattr(error, "status_code", None)
    return f"{word if isinstance(word, str) and _FIRST_WORD.fullmatch(word) else type(error).__name__}: {message}"
