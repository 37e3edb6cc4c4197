"""A store whose archive is on, and what archives it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from features.archive.archiver import Archiver
from features.archive.backlog import Backlog
from features.archive.database import Database
from features.archive.tests.turns import RETENTION
from palaver import feature
from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.scripting import additions, scripts


@pytest.fixture(autouse=True)
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The archive is on: its parts stand in the scripts."""
    url = f"sqlite:///{tmp_path}/archive.db"
    monkeypatch.setenv("PALAVER_ARCHIVE_URL", url)
    caches = (feature.is_set, additions.all_hooks, additions.all_lua_files, scripts._sources)
    for cache in caches:
        cache.cache_clear()
    yield url
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"retention": float(RETENTION)})


@pytest.fixture
async def store(store: Store) -> AsyncIterator[Store]:
    """The store; afterwards what it remembers by is closed."""
    yield store
    await store.memories.close()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database.of(url)
    await database.migrate()
    yield database
    await database.close()


@pytest.fixture
def archiver(store: Store, database: Database) -> Archiver:
    return Archiver(store.part(Backlog), database)
