"""What unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from palaver.client import backoff, resuming
from palaver.operations import backend
from palaver.secrets import redaction as secrets


@pytest.fixture(scope="module", autouse=True)
def _patience() -> Iterator[None]:
    """The SDK pauses for a fiftieth of its time between tries, and tries as often as ever. The store of units is this
    process, or is beside it: while it stalls, no answer comes, and none is late."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "FIRST_PAUSE", backoff.FIRST_PAUSE / 50)
        patch.setattr(resuming, "RECONNECT", resuming.RECONNECT / 50)
        patch.setattr(backend, "_DEADLINE", 30.0)
        patch.setattr(backend, "_CROWDED", 60.0)
        yield


@pytest.fixture(autouse=True)
def _secrets_of_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test keeps secret, another one may say."""
    monkeypatch.setattr(secrets, "_values", set(secrets._values))
    monkeypatch.setattr(secrets, "_known", secrets._known)
