"""Log lines as JSON."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from palaver.config.settings import settings
from palaver.errors import ConfigurationError
from palaver.secrets import redaction as secrets
from palaver.secrets.redaction import Secrets, register_secrets
from palaver.telemetry import logs
from palaver.telemetry.logs import formatter_for, log_context


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> tuple[logging.Logger, io.StringIO]:
    monkeypatch.setattr(secrets, "_values", set())
    monkeypatch.setattr(secrets, "_known", Secrets())
    monkeypatch.setattr(logs, "_process", {"worker": "model.1@host"})
    logger, text = logging.Logger("of a test"), io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(formatter_for("json", None))
    logger.addHandler(handler)
    return logger, text


def _one(text: io.StringIO) -> dict[str, Any]:
    (line,) = text.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_says_what_it_is_about(written: tuple[logging.Logger, io.StringIO]) -> None:
    logger, text = written
    with log_context(run="run_1", step="1"), log_context(request="req_1"):
        logger.warning("it has %s\nlines", 2)
    told = _one(text)
    assert told.pop("time").endswith("+00:00")
    assert told == {
        "level": "warning", "logger": "of a test", "message": "it has 2\nlines", "worker": "model.1@host",
        "run": "run_1", "step": "1", "request": "req_1",
    }  # fmt: skip


def test_what_is_over_is_not_said_any_more(written: tuple[logging.Logger, io.StringIO]) -> None:
    logger, text = written
    with log_context(run="run_1"):
        pass
    logger.warning("nothing")
    assert "run" not in _one(text)


@pytest.mark.parametrize(("task", "step"), [("run_1:3:2", "3"), ("run_1:3:call_1:2", "3/call_1")])
def test_celerys_lines_are_about_the_run_of_their_task(
    written: tuple[logging.Logger, io.StringIO], task: str, step: str
) -> None:
    logger, text = written
    logger.warning("Task %(name)s[%(id)s] received", {"name": "palaver.model_step", "id": task})
    told = _one(text)
    assert (told["run"], told["step"]) == ("run_1", step)


def test_a_traceback_is_on_the_line_and_no_secret_is(written: tuple[logging.Logger, io.StringIO]) -> None:
    logger, text = written
    register_secrets(["sk-Canary/7+fOx&2b7d9e0c41aa55e3"])
    try:
        raise ValueError('sk-Canary/7+fOx&2b7d9e0c41aa55e3 is "wrong"')
    except ValueError:
        logger.exception("asked with %s", "sk-Canary/7+fOx&2b7d9e0c41aa55e3")
    told = _one(text)
    assert told["message"] == "asked with [redacted]"
    assert told["traceback"].endswith('ValueError: [redacted] is "wrong"')


def test_a_format_that_there_is_not_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_LOG_FORMAT", "xml")
    settings.cache_clear()
    with pytest.raises(ConfigurationError, match=r"^PALAVER_LOG_FORMAT: Input should be 'text' or 'json'$"):
        settings()
    settings.cache_clear()
