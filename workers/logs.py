"""The log lines of a worker."""

from __future__ import annotations

import logging
from typing import Any

from palaver.logs import Hiding, formatter_for
from palaver.settings import settings


def set_formats(logger: logging.Logger, **_: Any) -> None:
    """What ``logger`` writes is in the format of the settings from here on, without secrets of this process."""
    for handler in logger.handlers:
        if not isinstance(handler.formatter, Hiding):
            handler.setFormatter(formatter_for(settings().log_format, handler.formatter))
