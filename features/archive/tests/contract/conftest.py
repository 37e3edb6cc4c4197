"""A store whose archive is on, and what archives it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from features.archive.archiver import Archiver
from features.archive.backlog import Backlog
from features.archive.database import Database
from features.archive.tests.turns import RETENTION
from palaver.config.settings import Settings
from palaver.store import Store


@pytest.fixture(autouse=True)
def url(tmp_path: Path, archive_at: Callable[[str], str]) -> str:
    return archive_at(f"sqlite:///{tmp_path}/archive.db")


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
