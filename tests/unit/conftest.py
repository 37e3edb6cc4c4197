"""What unit tests share."""

from __future__ import annotations

import pytest

from palaver.client import backoff, resuming
from palaver.operations import backend
from palaver.secrets import redaction as secrets


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK pauses for a fiftieth of its time between tries. It tries as often as ever."""
    monkeypatch.setattr(backoff, "FIRST_PAUSE", backoff.FIRST_PAUSE / 50)
    monkeypatch.setattr(resuming, "RECONNECT", resuming.RECONNECT / 50)


@pytest.fixture(autouse=True)
def _patient_with_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of units is this process: while it stalls, no answer comes, and none is late."""
    monkeypatch.setattr(backend, "_DEADLINE", 30.0)
    monkeypatch.setattr(backend, "_CROWDED", 60.0)


@pytest.fixture(autouse=True)
def _secrets_of_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test keeps secret, another one may say."""
    monkeypatch.setattr(secrets, "_values", set(secrets._values))
    monkeypatch.setattr(secrets, "_known", secrets._known)
