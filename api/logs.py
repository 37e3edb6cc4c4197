"""The log lines of the API: its own, uvicorn's, and one for each request with the request's id."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from uvicorn.logging import AccessFormatter, DefaultFormatter

from palaver.logs import LogFormat, WithRequest, formatter_for
from palaver.secrets import REDACTED

_LINE: Final = "%(levelprefix)s %(message)s"
_REQUEST: Final = '%(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s %(request)s'
_FIELD: Final = re.compile(r"([?&]([^=&]*)=)[^&]*")
_OF_A_KEY: Final = re.compile(r"(?i)key|token|secret|password|%")
"""In the name of a field that a key may stand in; one that is escaped says nothing of itself."""


class WithoutKeys(logging.Filter):
    """Takes the keys that stand in addresses out of uvicorn's records of requests: right ones and wrong ones."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let it pass."""
        if isinstance(record.args, tuple):
            record.args = tuple(_without_keys(each) for each in record.args)
        return True


def _without_keys(told: object) -> object:
    return _FIELD.sub(_redacted, told) if isinstance(told, str) else told


def _redacted(field: re.Match[str]) -> str:
    return field[1] + REDACTED if _OF_A_KEY.search(field[2]) else field[0]


def _lines(log_format: LogFormat) -> logging.Formatter:
    return formatter_for(log_format, DefaultFormatter(_LINE))


def _requests(log_format: LogFormat) -> logging.Formatter:
    return formatter_for(log_format, AccessFormatter(_REQUEST))


def configuration(log_format: LogFormat) -> dict[str, Any]:
    """What uvicorn is to do about logs, as `logging.config.dictConfig` takes it."""
    stream = {"class": "logging.StreamHandler"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"request": {"()": WithRequest}, "keys": {"()": WithoutKeys}},
        "formatters": {
            "lines": {"()": _lines, "log_format": log_format},
            "requests": {"()": _requests, "log_format": log_format},
        },
        "handlers": {
            "lines": {**stream, "formatter": "lines", "stream": "ext://sys.stderr"},
            "requests": {**stream, "formatter": "requests", "filters": ["request"], "stream": "ext://sys.stdout"},
        },
        "loggers": {
            "uvicorn": {"handlers": ["lines"], "level": "INFO", "propagate": False},
            "uvicorn.access": {"handlers": ["requests"], "filters": ["keys"], "level": "INFO", "propagate": False},
        },
        "root": {"handlers": ["lines"], "level": "WARNING"},
    }
