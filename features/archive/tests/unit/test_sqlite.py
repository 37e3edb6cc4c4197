"""A file of SQLite is locked, damaged, full, or its writer is killed: what was said to be written is there."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.event

from features.archive import connections
from features.archive.database import Database
from features.archive.errors import ArchiveAway
from features.archive.tests.conversations import conversation, conversation_id, said, with_a_call
from tests.waiting import aeventually

ONE = conversation_id("one")
_WRITER = """
import asyncio, itertools, sys
from features.archive.database import Database
from features.archive.tests.conversations import conversation_id, with_a_call

async def write():
    database = Database.of(sys.argv[1])
    for number in itertools.count():
        name = conversation_id(str(number))
        await database.write([with_a_call(name)])
        print(name, flush=True)

asyncio.run(write())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.sqlite"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = Database.of(f"sqlite:///{path}")
    await database.migrate()
    yield database
    await database.close()


async def test_its_owner_alone_can_read_it(database: Database, path: Path) -> None:
    await database.write([with_a_call(ONE)])
    assert {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == dict.fromkeys(
        (path.name, f"{path.name}-wal", f"{path.name}-shm"), 0o600
    )


async def test_a_lock_of_another_process_is_not_waited_for_for_ever(
    path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.write([with_a_call(ONE)])
    monkeypatch.setattr(connections, "LOCK", 0.1)
    hasty = Database.of(f"sqlite:///{path}")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ArchiveAway, match="another process holds it up"):
        await hasty.write([with_a_call(ONE)])
    # Readers are in the way of nothing, and nothing is in theirs.
    assert len(await hasty.entries(ONE, 0, 10)) == 5
    other.close()
    await hasty.write([with_a_call(ONE)])
    await hasty.close()


async def test_a_full_disk_loses_nothing_and_is_gone_on_with_once_there_is_room(path: Path, database: Database) -> None:
    await database.write([with_a_call(ONE)])
    small = Database.of(f"sqlite:///{path}")
    pages = {"most": 60}

    def bound(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA max_page_count = {pages['most']}")
        cursor.close()

    sqlalchemy.event.listen(small._connections._engine.sync_engine, "connect", bound)
    large = conversation(ONE, [said(each, "", "x" * 10_000) for each in range(1, 100)])
    with pytest.raises(ArchiveAway, match="its disk is full"):
        await small.write([large])
    assert [*await small.entries(ONE, 0, 1000)] == [*with_a_call(ONE).entries]
    await small.close()
    pages["most"] = 10_000
    await small.write([large])
    assert len(await small.entries(ONE, 0, 1000)) == 99
    await small.close()


@pytest.mark.parametrize(
    ("content", "said"), [(b"no database at all" * 100, "its file is no database"), (None, "its file cannot be opened")]
)
async def test_what_is_no_database_is_said_and_leaves_no_thread(path: Path, content: bytes | None, said: str) -> None:
    make(path, content)
    before = {*threading.enumerate()}
    database = Database.of(f"sqlite:///{path}")
    with pytest.raises(ArchiveAway, match=said):
        await database.migrate()
    await database.close()
    # One that ends takes the loop for it, a moment later.
    await aeventually(lambda: before.issuperset(threading.enumerate()))


def make(path: Path, content: bytes | None) -> None:
    """A file with this content; a folder for none."""
    path.mkdir() if content is None else path.write_bytes(content)


@pytest.mark.process
async def test_a_writer_that_is_killed_has_written_what_it_said(path: Path, database: Database) -> None:
    for _ in range(3):
        written = await asyncio.to_thread(written_until_killed, path)
        for each in written:
            assert [*await database.entries(each, 0, 10)] == [*with_a_call(each).entries]
        # One more may have been written than was said.
        sizes = await database.size()
        assert sizes["entries"] == 5 * sizes["conversations"]
        assert sizes["conversations"] - len(written) in (0, 1)
        await database.forget_conversations([conversation_id(str(number)) for number in range(sizes["conversations"])])


def written_until_killed(path: Path) -> list[str]:
    """The conversations that a process said it had written before it was killed."""
    command = [sys.executable, "-c", _WRITER, f"sqlite:///{path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        written = [writer.stdout.readline().strip() for _ in range(20)]
        writer.kill()
        return [*written, *(line.strip() for line in writer.stdout if line.endswith("\n"))]
