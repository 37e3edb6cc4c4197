"""What unit tests share."""

from __future__ import annotations

import pytest

from palaver.client import backoff, resuming


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK pauses for a fiftieth of its time between tries. It tries as often as ever."""
    monkeypatch.setattr(backoff, "FIRST_PAUSE", backoff.FIRST_PAUSE / 50)
    monkeypatch.setattr(resuming, "RECONNECT", resuming.RECONNECT / 50)
