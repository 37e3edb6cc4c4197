"""The comparison of the archive with the store: nothing where all is well, and each fault that was planted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from features.archive.archiver import Archiver
from features.archive.backlog import Backlog
from features.archive.database import Database
from features.archive.tests.turns import evict, one_turn
from features.archive.verifying import Fault, Verification
from palaver.store import Store
from tests.contract.store_driver import StoreDriver

FAULTS = {
    "an entry lacks": "DELETE FROM entries WHERE position = 3",
    "the last entry lacks": "DELETE FROM entries WHERE position = (SELECT max(position) FROM entries)",
    "an entry too many": "INSERT INTO entries SELECT conversation_id, 99, tenant, type, at, run_id, seq, data, opaque, "
    "readable, bytes, exact FROM entries WHERE position = 1",
    "other words": "UPDATE entries SET data = replace(data, 'hello', 'howdy')",
    "no JSON": "UPDATE entries SET data = 'hello' WHERE position = 1",
    "words swapped": "UPDATE entries SET data = (SELECT data FROM entries e WHERE e.position = 3 - entries.position) "
    "WHERE position < 3",
    "another kind": "UPDATE entries SET type = 'run.paused' WHERE position = 2",
    "another time": "UPDATE entries SET at = '2020-01-01T00:00:00.000Z' WHERE position = 2",
    "another number": "UPDATE entries SET seq = 77 WHERE position = 2",
    "another run": "UPDATE entries SET run_id = 'run_0000000000000000000000000000' WHERE position = 2",
    "opaque parts": "UPDATE entries SET opaque = '{}' WHERE position = 2",
    "an entry of another tenant": "UPDATE entries SET tenant = 'k7m2qx' WHERE position = 2",
    "a run lacks": "DELETE FROM runs",
    "a run with another end": "UPDATE runs SET record = replace(record, 'completed', 'cancelled')",
    "a run with another column": "UPDATE runs SET status = 'failed'",
    "a run of another tenant": "UPDATE runs SET tenant = 'k7m2qx'",
    "a run that did not end": "UPDATE runs SET record = json_remove(record, '$.ended_at')",
    "a run that cost more": "UPDATE runs SET cost_usd = 1",
    "another title": "UPDATE conversations SET record = json_set(record, '$.title', 'howdy')",
    "a column with another title": "UPDATE conversations SET title = 'howdy'",
    "a conversation of another tenant": "UPDATE conversations SET tenant = 'k7m2qx'",
    "a conversation lacks": "DELETE FROM conversations",
}
UNSEEN = {"other words", "words swapped", "another kind", "another time", "another number", "another run"}
UNSEEN |= {"opaque parts", "another title", "a conversation lacks", "a run with another end"}
"""What only the store can tell."""


async def faults_of(store: Store, database: Database) -> list[Fault]:
    return [fault async for fault in Verification(store.part(Backlog), database).faults()]


def plant(tmp_path: Path, statement: str) -> None:
    with closing(sqlite3.connect(tmp_path / "archive.db")) as file, file:
        assert file.execute(statement).rowcount > 0


@pytest.mark.parametrize("what", FAULTS)
async def test_a_fault_is_found(
    driver: StoreDriver, store: Store, archiver: Archiver, database: Database, tmp_path: Path, what: str
) -> None:
    conversation, _ = await one_turn(driver)
    await archiver.look()
    assert await faults_of(store, database) == []
    plant(tmp_path, FAULTS[what])
    assert {fault.id for fault in await faults_of(store, database)} == {conversation}


@pytest.mark.parametrize("what", sorted(FAULTS.keys() - UNSEEN))
async def test_it_is_found_by_the_archive_alone(
    driver: StoreDriver, store: Store, redis: Any, archiver: Archiver, database: Database, tmp_path: Path, what: str
) -> None:
    conversation, run = await one_turn(driver)
    await archiver.look()
    await evict(redis, conversation, run)
    assert await faults_of(store, database) == []
    plant(tmp_path, FAULTS[what])
    assert {fault.id for fault in await faults_of(store, database)} == {conversation}
