"""The log lines of a worker, without its secrets."""

from __future__ import annotations

import logging
from typing import Any

from palaver.secrets import hide


class Hiding(logging.Formatter):
    """Another formatter's lines, tracebacks included, without the secrets of this process."""

    def __init__(self, other: logging.Formatter | None) -> None:
        super().__init__()
        self._other = other or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        """The line that the other one makes of it, without secrets."""
        return hide(self._other.format(record))


def hide_secrets(logger: logging.Logger, **_: Any) -> None:
    """What ``logger`` writes is compared with the secrets of this process from here on."""
    for handler in logger.handlers:
        if not isinstance(handler.formatter, Hiding):
            handler.setFormatter(Hiding(handler.formatter))
