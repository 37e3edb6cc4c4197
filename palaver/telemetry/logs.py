"""Log lines of servers: for people, or as JSON (``PALAVER_LOG_FORMAT``), and without the secrets of the process."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal

from palaver.processes.context import Holding
from palaver.secrets.redaction import redact

LogFormat = Literal["text", "json"]
_about: Final[ContextVar[Mapping[str, str]]] = ContextVar("about")
_process: Final[dict[str, str]] = {}
_json = False
"""True in a server whose lines are JSON, its last ones included."""
_TASK_ID: Final = re.compile(r"(run_\w+):(.+):\d+")
"""``<run_id>:<seq>[:<call_id>]:<delivery>``: what Celery's own lines are about."""


def name_process(**facts: str) -> None:
    """Say what every line of this process is about: ``worker``."""
    _process.update(facts)


def log_context(**facts: str) -> AbstractContextManager[None]:
    """Say what the lines within are about: ``run``, ``step``, ``request``, ``trace_id``. For this task, and those that
    it starts."""
    return Holding(_about, {**_about.get({}), **facts})


def bind_log_context(**facts: str) -> None:
    """Say more of what the lines are about, until the end of the ``log_context`` that this is called in."""
    if facts:
        _about.set({**_about.get({}), **facts})


class Hiding(logging.Formatter):
    """Another formatter's lines, tracebacks included, without the secrets of this process."""

    def __init__(self, other: logging.Formatter | None) -> None:
        super().__init__()
        self._other = other or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        """The line that the other one makes of it, without secrets."""
        return redact(self._other.format(record))


class JsonLines(logging.Formatter):
    """Each record as an object on one line: time, level, logger, message, what it is about, its own ``fields`` (from
    ``extra``), and its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_process,
            **_of_task(record),
            **_about.get({}),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def formatter_for(log_format: LogFormat, text: logging.Formatter | None) -> logging.Formatter:
    """The formatter of that format, where ``text`` is the one for people."""
    return Hiding(JsonLines() if log_format == "json" else text)


def serve_json() -> bool:
    """Make every line of this process JSON from here on, if its environment asks for that: warnings of libraries and
    tracebacks that end it, too, and lines from before the program sets up its own logs. Returns whether it does."""
    global _json
    if os.environ.get("PALAVER_LOG_FORMAT") != "json":
        return False
    if not _json:
        _json = True
        handler = logging.StreamHandler(sys.__stderr__)
        handler.setFormatter(formatter_for("json", None))
        logging.getLogger().addHandler(handler)
        logging.captureWarnings(True)
        sys.excepthook = _log_exception
    return True


def sentence(text: str, level: int = logging.WARNING) -> str:
    """Format a message of a server outside of its log, such as why it ends: after its name, or as a line of JSON."""
    if not _json:
        return f"palaver: {text}"
    return redact(JsonLines().format(logging.LogRecord("palaver", level, "", 0, text, None, None)))


def _log_exception(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    interrupted = issubclass(kind, KeyboardInterrupt)
    logging.getLogger("palaver").critical(
        "%s ends this process", kind.__name__, exc_info=None if interrupted else (kind, error, traceback)
    )


def _of_task(record: logging.LogRecord) -> Mapping[str, str]:
    task_id = record.args.get("id") if isinstance(record.args, Mapping) else None
    match = _TASK_ID.fullmatch(task_id) if isinstance(task_id, str) else None
    return {"run": match[1], "step": match[2].replace(":", "/")} if match else {}
