"""PostgreSQL dies, restarts, refuses and fills up under the archive: what was said to be written is there, once."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, Literal

import psycopg
import pytest

from features.archive import connections
from features.archive.database import Database
from features.archive.errors import ArchiveAway
from features.archive.tests.conversations import conversation, conversation_id, run_of, said, with_a_call
from features.stack.ports import HOST, free_port
from palaver.errors import ConfigurationError
from tests.postgres import PASSWORD, USER, PostgresServer, find_programs
from tests.waiting import aeventually

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        find_programs() is None,
        reason="POSTGRESQL IS NOT TESTED: its programs are not there; apt-get install postgresql",
    ),
]

ACME: Final = "acme00"
ONE, OURS = conversation_id("one"), conversation_id("one", ACME)
Cut = Literal["before", "after"]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    if not server.running:
        server.start()
    return server.new_database()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database.of(url)
    await database.migrate()
    yield database
    await database.close()


async def whole(database: Database, conversation_id: str) -> bool:
    """Tell whether a conversation is there as `with_a_call` has it; False if nothing of it is."""
    fields, entries = await database.record(conversation_id), await database.entries(conversation_id, 0, 100)
    if fields is None:
        assert entries == []
        return False
    wanted = with_a_call(conversation_id)
    assert fields == wanted.fields
    assert [*await database.latest_runs(conversation_id, 100)][::-1] == [*wanted.runs]
    assert entries == [*wanted.entries]
    return True


async def until_away(database: Database, beginning: str, written: set[str]) -> str:
    """Write conversations until the database is away. Return the id of the last one, which may be there or not; those
    that are there for sure come into ``written``."""
    for number in count():
        name = conversation_id(f"{beginning} {number}")
        try:
            await database.write([with_a_call(name)])
        except ArchiveAway:
            break
        written.add(name)
    return name


async def test_a_server_that_is_killed_amid_commits_has_what_it_said_and_halves_nothing(
    server: PostgresServer, database: Database
) -> None:
    written, unknown = set[str](), set[str]()
    for kill in range(4):
        enough = len(written) + 20 + 7 * kill
        writers = [asyncio.create_task(until_away(database, f"{kill} {each}", written)) for each in range(4)]
        await aeventually(lambda enough=enough: len(written) > enough)  # type: ignore[misc]
        server.kill()
        unknown |= {*await asyncio.gather(*writers)}
        server.start()
    # The same connections as before: none of them is to a server that runs.
    assert all([await whole(database, each) for each in written])
    for each in unknown:
        await whole(database, each)
        await database.write([with_a_call(each)])
    assert all([await whole(database, each) for each in unknown])
    assert (await database.size())["conversations"] == len(written) + len(unknown) == len(written) + 16


async def test_after_a_restart_the_next_call_works(server: PostgresServer, database: Database) -> None:
    await database.write([with_a_call(ONE)])
    server.stop()
    with pytest.raises(ArchiveAway, match="nothing listens at its address"):
        await database.entries(ONE, 0, 1)
    server.start()
    assert await whole(database, ONE)


async def test_connections_that_were_ended_meanwhile_are_made_again(server: PostgresServer, database: Database) -> None:
    await database.write([with_a_call(ONE)])
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'palaver'")
    assert await whole(database, ONE)


@asynccontextmanager
async def cutting(server: PostgresServer, cut: Cut) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A port that leads to the server, and breaks the first connection on which a commit is sent: before the server has
    it, or after it has answered. The list has the cut that was made."""
    made: list[bytes] = []
    handlers: list[asyncio.Task[None]] = []

    async def forward(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: list[asyncio.StreamWriter]
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                commits = b"COMMIT" in data and not made
                if commits and writer is ends[0] and cut == "before":
                    made.append(data)
                    break
                if commits and writer is ends[1] and cut == "after":
                    made.append(data)
                    break
                writer.write(data)
        for end in ends:
            end.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.append(task)
        server_reader, server_writer = await asyncio.open_connection(HOST, server.port)
        ends = [server_writer, writer]
        await asyncio.gather(forward(reader, server_writer, ends), forward(server_reader, writer, ends))

    port = free_port()
    async with await asyncio.start_server(accept, HOST, port):
        yield port, made
        await asyncio.gather(*handlers)


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_connection_that_breaks_in_a_commit_leaves_all_or_nothing(
    server: PostgresServer, url: str, cut: Cut
) -> None:
    direct = Database.of(url)
    await direct.migrate()
    async with cutting(server, cut) as (port, made):
        database = Database.of(url.replace(f":{server.port}/", f":{port}/") + "?sslmode=disable")
        with pytest.raises(ArchiveAway):
            await database.write([with_a_call(ONE)])
        assert len(made) == 1
        assert await whole(direct, ONE) == (cut == "after")
        await database.write([with_a_call(ONE)])
        assert await whole(database, ONE)
        await database.close()
    await direct.close()


async def test_a_standby_is_read_and_takes_writes_once_it_is_promoted(
    server: PostgresServer, database: Database
) -> None:
    await database.write([with_a_call(ONE)])
    server.stop()
    (server.data / "standby.signal").touch()
    server.start()
    assert await whole(database, ONE)
    with pytest.raises(ArchiveAway, match="takes no writes"):
        await database.write([with_a_call(OURS)])
    server.execute("SELECT pg_promote()")
    await database.write([with_a_call(OURS)])
    assert await whole(database, OURS)


async def test_a_server_that_answers_nothing_is_waited_for_and_not_for_ever(
    server: PostgresServer, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.write([with_a_call(ONE)])
    monkeypatch.setattr(connections, "WHOLE", 0.5)
    server.pause()
    try:
        for _ in range(3):
            with pytest.raises(ArchiveAway, match="did not answer in time"):
                await database.write([with_a_call(OURS)])
    finally:
        server.resume()
    monkeypatch.undo()
    await database.write([with_a_call(OURS)])
    assert await whole(database, OURS)


async def test_a_port_that_takes_connections_and_says_nothing_is_not_waited_for_for_ever(
    url: str, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECT", 2)
    monkeypatch.setattr(connections, "WHOLE", 1_000_000)
    with socket.create_server((HOST, 0)) as silent:
        database = Database.of(url.replace(f":{server.port}/", f":{silent.getsockname()[1]}/"))
        with pytest.raises(ArchiveAway, match="did not answer in time"):
            await database.write([with_a_call(ONE)])
        await database.close()


async def test_a_lock_of_another_program_is_not_waited_for_for_ever(
    url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOCK", 0.2)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE palaver.runs IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ArchiveAway, match="another process holds it up"):
            await database.write([with_a_call(ONE)])
    await database.write([with_a_call(ONE)])


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        (f":{PASSWORD}@", ":a-wrong-one@", "refuses the user or the password"),
        (f"//{USER}:", "//nobody:", "refuses the user or the password"),
        ("/archive", "/nothing", "has no such database"),
        (HOST, "db.invalid", "host name is not known"),
    ],
)
async def test_why_there_is_no_connection_is_said_without_a_secret(url: str, wrong: str, right: str, said: str) -> None:
    database = Database.of(url.replace(wrong, right))
    with pytest.raises(ArchiveAway, match=said) as away:
        await database.migrate()
    assert PASSWORD not in str(away.value)
    assert "a-wrong-one" not in str(away.value)
    assert away.value.__suppress_context__
    await database.close()


async def test_a_user_without_rights_is_told_which(server: PostgresServer, url: str, database: Database) -> None:
    server.execute(f"CREATE ROLE lodger LOGIN PASSWORD '{PASSWORD}'")
    lodger = Database.of(url.replace(f"//{USER}:", "//lodger:"))
    for refused in (lodger.migrate(), lodger.write([with_a_call(ONE)])):
        with pytest.raises(ConfigurationError, match="own the schema palaver"):
            await refused
    await lodger.close()


async def test_a_reader_sees_its_tenant_alone_in_tables_and_views(
    server: PostgresServer, url: str, database: Database
) -> None:
    await database.write([with_a_call(ONE), with_a_call(OURS)])
    for tag in ("", ACME):
        await database.write_acts(tag, {"1-0": "{}"}, await database.versions(()))
    server.execute(f"CREATE ROLE reporting LOGIN PASSWORD '{PASSWORD}'")
    server.execute("SELECT palaver.admit_reader('reporting')", url)
    newer = int(server.execute("SHOW server_version_num")[0][0]) >= 150_000
    views = ("messages", "tool_calls", "approvals", "usage", "attempts", "steps") if newer else ()
    reader = url.replace(f"//{USER}:", "//reporting:")
    with psycopg.connect(reader, autocommit=True) as connection:

        def tenants() -> dict[str, set[str]]:
            names = ("conversations", "runs", "entries", "acts", *views)
            queries = {name: f"SELECT DISTINCT tenant FROM palaver.{name}" for name in names}
            return {name: {row[0] for row in connection.execute(query)} for name, query in queries.items()}

        for setting, seen in ((None, set()), (ACME, {ACME}), ("default", {"default"}), ("", set()), ("other0", set())):
            if setting is not None:
                connection.execute("SELECT set_config('palaver.tenant', %s, false)", [setting])
            assert tenants() == dict.fromkeys(tenants(), seen)
        # A setting of a transaction that is over is none, and not that of the default tenant.
        with connection.transaction():
            connection.execute(f"SET LOCAL palaver.tenant = '{ACME}'")
            assert tenants()["runs"] == {ACME}
        assert tenants()["runs"] == set()
        connection.execute("SET palaver.tenant = 'default'")
        for change in ("DELETE FROM palaver.runs", "UPDATE palaver.entries SET tenant = 'default'"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(change)
    assert {row[0] for row in server.execute("SELECT DISTINCT tenant FROM palaver.messages", url)} == {"default", ACME}


async def test_a_reader_of_one_tenant_sees_no_other_whatever_it_sets(
    server: PostgresServer, url: str, database: Database
) -> None:
    await database.write([with_a_call(ONE), with_a_call(OURS)])
    for tag in ("", ACME):
        await database.write_acts(tag, {"1-0": "{}"}, await database.versions(()))
    server.execute(f"CREATE ROLE acme LOGIN PASSWORD '{PASSWORD}'")
    for _ in range(2):
        server.execute(f"SELECT palaver.admit_reader('acme', '{ACME}')", url)
    names = ["conversations", "runs", "entries", "acts"]
    if int(server.execute("SHOW server_version_num")[0][0]) >= 150_000:
        names += ["messages", "tool_calls", "approvals", "usage", "attempts", "steps"]
    with psycopg.connect(url.replace(f"//{USER}:", "//acme:"), autocommit=True) as connection:
        for setting in ("", ACME, "default", "other0"):
            connection.execute("SELECT set_config('palaver.tenant', %s, false)", [setting])
            for name in names:
                seen = connection.execute(f"SELECT DISTINCT tenant FROM palaver.{name}").fetchall()
                assert seen == [(ACME,)], (setting, name)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    place = Path("/tmp") / f"palaver-small-{os.getpid()}"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        place.rmdir()
        pytest.skip("A FULL DISK IS NOT TESTED: to mount a small one takes rights that are not there")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)
    place.rmdir()


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)


async def test_a_full_disk_loses_nothing_and_is_gone_on_with_once_there_is_room(
    server: PostgresServer, url: str, small_disk: Path
) -> None:
    os.chown(small_disk, 65534, 65534)
    server.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    server.execute("CREATE DATABASE small TABLESPACE small")
    database = Database.of(server.url("small"))
    await database.migrate()
    # Different enough that to compress it is of no use.
    text = os.urandom(20_000).hex()
    written: list[str] = []

    async def fill() -> None:
        for number in range(10_000):
            name = conversation_id(f"full {number}")
            run = run_of(name)
            await database.write([conversation(name, [said(each, run.id, text) for each in range(1, 11)], [run])])
            written.append(name)

    with pytest.raises(ArchiveAway, match="its disk is full"):
        await fill()
    assert written
    assert all([len(await database.entries(each, 0, 100)) == 10 for each in written])
    assert (await database.size())["conversations"] == len(written)
    enlarge(small_disk)
    await database.write([with_a_call(ONE)])
    assert await whole(database, ONE)
    await database.close()
    server.execute("DROP DATABASE small")
    server.execute("DROP TABLESPACE small")
