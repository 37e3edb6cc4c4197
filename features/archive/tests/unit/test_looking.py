"""The row of `palaver check` about the archive."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from features.archive.database import Database
from features.archive.opening import findings_of
from tests.unit.api_world import SETTINGS


def test_without_an_archive_nothing_is_said() -> None:
    assert findings_of(SETTINGS) == ()


def test_a_database_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/archive.db"
    monkeypatch.setenv("PALAVER_ARCHIVE_URL", url)
    (new,) = findings_of(SETTINGS)
    assert (new.level, "palaver archive migrate" in new.found) == ("ok", True)

    async def migrate() -> None:
        database = Database.of(url)
        await database.migrate()
        await database.close()

    asyncio.run(migrate())
    (found,) = findings_of(SETTINGS)
    assert (found.level, found.found) == ("ok", "schema 0002, 0 conversations, 0 MiB")


def test_one_that_is_away_is_an_error_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_ARCHIVE_URL", "postgresql://palaver:a-secret@127.0.0.1:1/app")
    (found,) = findings_of(SETTINGS)
    assert found.level == "error"
    assert "a-secret" not in repr(found)
