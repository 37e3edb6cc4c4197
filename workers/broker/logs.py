"""The log lines of a worker."""

from __future__ import annotations

import logging
import os
from typing import Any, Final

from celery.utils.log import get_multiprocessing_logger

from palaver.config.settings import settings
from palaver.telemetry.logs import Hiding, formatter_for, sentence

_STDERR: Final = 2


def set_formats(logger: logging.Logger, **_: Any) -> None:
    """Set the format of the settings for ``logger``: from here on it writes no secrets of this process."""
    for handler in [*logger.handlers, *get_multiprocessing_logger().handlers]:
        if not isinstance(handler.formatter, Hiding):
            handler.setFormatter(formatter_for(settings().log_format, handler.formatter))
    if settings().log_format == "json":
        from celery.apps import worker

        worker.safe_say = _say


def without_traceback(record: logging.LogRecord) -> bool:
    """A filter for loggers of libraries that say a server's refusal with a traceback: the refusal is enough."""
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        record.msg, record.args = "%s: %s: %s", (record.getMessage(), type(error).__name__, error)
        record.exc_info = None
    return True


# kombu tries again, each second, to keep a mailbox alive that a full Redis does not let it write to.
logging.getLogger("kombu.transport.redis").addFilter(without_traceback)


def _say(text: str, stream: Any = None) -> None:
    """Write a message in place of Celery's when a signal comes, which would be no JSON. This runs in a handler of
    signals, so it does not use the log, which the signal may have interrupted."""
    os.write(_STDERR, f"{sentence(text, logging.INFO)}\n".encode())
