"""How a test turns the archive on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import once


@pytest.fixture
def archive_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Turns the archive on, in the database of a URL: its parts stand in the scripts."""

    def turn_on(url: str) -> str:
        monkeypatch.setenv("PALAVER_ARCHIVE_URL", url)
        once.forget_switches()
        return url

    yield turn_on
    monkeypatch.undo()
    once.forget_switches()
