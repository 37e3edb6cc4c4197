"""The log lines of the API: its own, uvicorn's, and one for each request with the request's id."""

from __future__ import annotations

import logging
from typing import Any, Final

from uvicorn.logging import AccessFormatter, DefaultFormatter

from palaver.telemetry.logs import LogFormat, formatter_for

from .access_log import ACCESS
from .audit import AUDIT

_LINE: Final = "%(levelprefix)s %(message)s"
_REQUEST: Final = '%(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s %(tail)s'


def _lines(log_format: LogFormat) -> logging.Formatter:
    return formatter_for(log_format, DefaultFormatter(_LINE))


def _requests(log_format: LogFormat) -> logging.Formatter:
    return formatter_for(log_format, AccessFormatter(_REQUEST))


def configuration(log_format: LogFormat) -> dict[str, Any]:
    """Return uvicorn's settings for logs, as `logging.config.dictConfig` takes them."""
    stream = {"class": "logging.StreamHandler"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "lines": {"()": _lines, "log_format": log_format},
            "requests": {"()": _requests, "log_format": log_format},
        },
        "handlers": {
            "lines": {**stream, "formatter": "lines", "stream": "ext://sys.stderr"},
            "requests": {**stream, "formatter": "requests", "stream": "ext://sys.stdout"},
        },
        "loggers": {
            "uvicorn": {"handlers": ["lines"], "level": "INFO", "propagate": False},
            ACCESS.name: {"handlers": ["requests"], "level": "INFO", "propagate": False},
            AUDIT.name: {"level": "INFO"},
        },
        "root": {"handlers": ["lines"], "level": "WARNING"},
    }
