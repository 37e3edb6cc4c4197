"""The archive's database: what is written comes back byte for byte, once, and only from the newest writer.

Each test runs on SQLite, and on a PostgreSQL of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, inspect

from features.archive.database import Database
from features.archive.errors import ArchiveOvertaken, ArchiveRefused
from features.archive.records import ArchivedConversation, ArchivedEntry, ArchivedRun
from features.archive.rows import entry_of, entry_row
from features.archive.schema import _migrate, newest
from features.archive.tables import METADATA, SCHEMA
from features.archive.tests.conversations import (
    AT,
    conversation,
    conversation_id,
    entry,
    run_of,
    said,
    with_a_call,
)
from palaver.errors import ConfigurationError
from tests.postgres import PostgresServer, running_postgres

ACME: Final = "acme00"
ONE, TWO, OURS = conversation_id("one"), conversation_id("two"), conversation_id("one", ACME)
ODD: Final = 'ü\n\t"\\ \u2028 \U0001f600 NUL \0 half \ud83d'


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.process)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'archive.sqlite'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database.of(url)
    await database.migrate()
    yield database
    await database.close()


async def rows(database: Database, query: str) -> list[dict[str, Any]]:
    """What people see who ask the database itself."""
    async with database._connections.reading() as connection:
        if not database._connections.is_postgresql:
            query = query.replace("palaver.", "")
        return [{**row} for row in (await connection.exec_driver_sql(query)).mappings()]


async def everything(database: Database, conversation_id: str) -> ArchivedConversation | None:
    fields = await database.record(conversation_id)
    if fields is None:
        return None
    runs = [*await database.latest_runs(conversation_id, 1000)][::-1]
    return ArchivedConversation(conversation_id, fields, await database.entries(conversation_id, 0, 1000), runs, 0)


def exactly(one: ArchivedConversation) -> list[Any]:
    """All of a conversation, with the order of fields."""
    runs = [(run.id, [*run.fields.items()]) for run in one.runs]
    return [one.id, [*one.fields.items()], runs, [(entry.position, [*entry.fields.items()]) for entry in one.entries]]


async def test_what_is_written_comes_back_byte_for_byte(database: Database) -> None:
    odd = ArchivedEntry(6, {"data": ODD, "newer": ODD, "at": "007", "type": ODD})
    whole = with_a_call(ONE)
    run = ArchivedRun(whole.runs[0].id, {**whole.runs[0].fields, "output": ODD, "error": ODD, "ended_at": "9" * 30})
    wanted = conversation(ONE, [*whole.entries, odd], [run], title=ODD, metadata=ODD, cost="x", created_at="")
    await database.write([wanted])
    found = await everything(database, ONE)
    assert found is not None
    assert exactly(found) == exactly(wanted)
    assert await database.conversation_of(run.id) == ONE
    assert await database.record(TWO) is None
    assert await database.conversation_of(run_of(TWO).id) is None
    assert [*await database.entries(TWO, 0, 10)] == []


@given(st.dictionaries(st.sampled_from(["type", "at", "run", "seq", "data", "opaque", "more"]), st.text()))
def test_an_entry_of_any_fields_comes_back_from_its_row(fields: dict[str, str]) -> None:
    class Found:
        _mapping = entry_row(ONE, ArchivedEntry(1, fields))

    assert [*entry_of(Found()).fields.items()] == [*fields.items()]


async def test_twice_is_once(database: Database) -> None:
    for _ in range(2):
        await database.write([with_a_call(ONE), with_a_call(TWO)])
    found = await everything(database, TWO)
    assert found is not None
    assert exactly(found) == exactly(with_a_call(TWO))
    sizes = {**await database.size()}
    assert sizes.pop("bytes") > 10_000
    assert sizes == {"conversations": 2, "runs": 2, "entries": 10, "acts": 0}


async def test_entries_behind_a_position_are_replaced(database: Database) -> None:
    run = run_of(ONE)
    await database.write([conversation(ONE, [said(each, run.id, f"old {each}") for each in range(1, 6)], [run])])
    ended = run_of(ONE, status="failed")
    await database.write([conversation(ONE, [said(4, run.id, "new")], [ended], after=3, title="New")])
    found = await everything(database, ONE)
    assert found is not None
    texts = [json.loads(entry.fields["data"])["message"]["content"] for entry in found.entries]
    assert texts == [
        "old 1",
        "old 2",
        "old 3",
        "new",
    ]
    assert found.fields["title"] == "New"
    assert [run.fields["status"] for run in found.runs] == ["failed"]


async def test_many_entries_are_written(database: Database) -> None:
    many = [said(each, "", "x" * each) for each in range(1, 1702)]
    await database.write([conversation(ONE, many)])
    assert [*await database.entries(ONE, 1200, 1000)] == many[1200:]


async def test_all_are_written_or_none(database: Database) -> None:
    twice = conversation(TWO, [said(1, "", "one"), said(1, "", "other")])
    with pytest.raises(ArchiveRefused) as refused:
        await database.write([with_a_call(ONE), twice])
    assert refused.value.code in ("23505", "SQLITE_CONSTRAINT_PRIMARYKEY")
    assert "other" not in str(refused.value)
    assert await database.record(ONE) is None


async def test_a_page_of_entries_is_bounded_by_number_and_by_bytes(database: Database) -> None:
    await database.write([conversation(ONE, [said(each, "", "x" * 1000) for each in range(1, 11)])])

    async def page(after: int, limit: int, most_bytes: int) -> list[int]:
        return [entry.position for entry in await database.entries(ONE, after, limit, most_bytes=most_bytes)]

    assert await page(0, 4, 10**6) == [1, 2, 3, 4]
    assert await page(8, 4, 10**6) == [9, 10]
    assert await page(2, 10, 3500) == [3, 4, 5]
    assert await page(2, 10, 10) == [3]


async def test_a_writer_that_was_overtaken_writes_nothing(database: Database) -> None:
    await database.write([with_a_call(ONE)])
    before = await database.versions([ONE, TWO])
    await database.write([with_a_call(ONE)], before)
    with pytest.raises(ArchiveOvertaken) as overtaken:
        await database.write([conversation(ONE), conversation(TWO)], before)
    assert overtaken.value.ids == (ONE,)
    assert len(await database.entries(ONE, 0, 10)) == 5
    assert await database.record(TWO) is None
    await database.write([conversation(TWO)], before)


async def test_what_was_deleted_is_not_written_by_a_writer_from_before(database: Database) -> None:
    before = await database.versions([ONE])
    await database.write([with_a_call(ONE)])
    await database.forget_conversations([ONE])
    with pytest.raises(ArchiveOvertaken):
        await database.write([with_a_call(ONE)], before)
    await database.write([with_a_call(ONE)], await database.versions([ONE]))
    for forgetting in (
        database.forget_runs([run_of(ONE).id]),
        database.forget_tenant("", 1),
    ):
        before = await database.versions([ONE])
        await forgetting
        with pytest.raises(ArchiveOvertaken):
            await database.write([with_a_call(ONE)], before)


async def test_writers_of_the_same_conversations_wait_for_each_other(url: str) -> None:
    databases = [Database.of(url) for _ in range(4)]
    await asyncio.gather(*(each.migrate() for each in databases))
    orders = [[ONE, TWO, OURS], [OURS, TWO, ONE], [TWO, ONE, OURS], [ONE, OURS, TWO]]
    for _ in range(5):
        await asyncio.gather(
            *(each.write(list(map(with_a_call, order))) for each, order in zip(databases, orders, strict=True))
        )
    assert (await databases[0].versions([ONE, TWO, OURS])).versions == dict.fromkeys((ONE, TWO, OURS), 20)
    for each in databases:
        await each.close()


async def test_one_of_several_writers_that_saw_the_same_wins(url: str) -> None:
    databases = [Database.of(url) for _ in range(4)]
    await databases[0].migrate()
    for version in (1, 2, 3):
        before = await databases[0].versions([ONE])
        writing = (each.write([with_a_call(ONE)], before) for each in databases)
        done = await asyncio.gather(*writing, return_exceptions=True)
        assert sorted(map(repr, done))[-1] == "None"
        assert [type(each) for each in done if each is not None] == [ArchiveOvertaken] * 3
        assert (await databases[0].versions([ONE])).versions == {ONE: version}
    for each in databases:
        await each.close()


async def test_conversations_are_forgotten_with_all_that_is_theirs(database: Database) -> None:
    await database.write([with_a_call(ONE), with_a_call(TWO)])
    await database.forget_conversations([ONE, OURS])
    sizes = await database.size()
    assert {**sizes, "bytes": 0} == {"conversations": 1, "runs": 1, "entries": 5, "acts": 0, "bytes": 0}
    assert await everything(database, TWO) is not None


async def test_runs_are_forgotten_with_their_entries(database: Database) -> None:
    first, second = run_of(ONE, "first"), run_of(ONE, "second")
    entries = [said(1, first.id, "a"), said(2, second.id, "b"), said(3, first.id, "c"), said(4, "", "d")]
    await database.write([conversation(ONE, entries, [first, second]), with_a_call(TWO)])
    await database.forget_runs([first.id, run_of(OURS).id])
    found = await everything(database, ONE)
    assert found is not None
    assert [entry.position for entry in found.entries] == [2, 4]
    assert found.runs == [second]
    assert len(await database.entries(TWO, 0, 10)) == 5


async def test_a_tenant_is_forgotten_in_parts(database: Database) -> None:
    ours = [conversation_id(str(each), ACME) for each in range(3)]
    await database.write([*map(with_a_call, ours), with_a_call(ONE)])
    for tag in (ACME, ""):
        await database.write_acts(tag, {f"{at}-0": "{}" for at in range(1, 10)}, await database.versions(()))
    parts = []
    while any((part := await database.forget_tenant(ACME, 7)).values()):
        assert sum(part.values()) <= 7
        parts.append(part)
    assert {name: sum(part[name] for part in parts) for name in parts[0]} == {
        "entries": 15,
        "runs": 3,
        "conversations": 3,
        "acts": 9,
    }
    left = {"conversations": 1, "runs": 1, "entries": 5, "acts": 9, "bytes": 0}
    assert {**await database.size(), "bytes": 0} == left
    found = await everything(database, ONE)
    assert found is not None
    assert exactly(found) == exactly(with_a_call(ONE))


async def test_columns_say_what_records_say(database: Database) -> None:
    failed = run_of(
        OURS,
        status="failed",
        stop_reason="error",
        error='{"class":"rate_limited","code":"429","message":"slow \\u0000 down"}',
        parent='{"run_id":"run_x"}',
        unpriced="1",
    )
    await database.write([conversation(OURS, [], [failed, run_of(OURS, "other")], metadata='{"a":"\\u0000\\ud800"}')])
    found = await rows(database, "SELECT * FROM palaver.runs ORDER BY status DESC")
    assert [row["tenant"] for row in found] == [ACME, ACME]
    for name, value in {
        "status": "failed",
        "stop_reason": "error",
        "error_class": "rate_limited",
        "error_code": "429",
        "error_message": "slow \ufffd down",
        "parent_run_id": "run_x",
        "agent": "support",
        "agent_version": 3,
        "model": "openai/small",
        "submitted_by": "ci/alice",
        "input_tokens": 1200,
        "cached_tokens": 0,
        "model_calls": 2,
        "cost_usd": None,
    }.items():
        assert found[0][name] == value
    assert float(found[1]["cost_usd"]) == 0.001234567
    key = "customer" if database._connections.is_postgresql else "$.customer"
    query = f"SELECT created_at = '2025-11-30T10:53:20.123Z' AS at, metadata ->> '{key}' AS customer FROM palaver.runs"
    query += " WHERE status = 'completed'"
    assert await rows(database, query) == [{"at": True, "customer": "4711"}]
    (row,) = await rows(database, "SELECT title, agent, cost_usd, metadata FROM palaver.conversations")
    assert (row["title"], row["agent"]) == ("A refund", "support")
    assert "0000" not in str(row["metadata"])


async def test_views_say_what_was_said_and_done(database: Database) -> None:
    await database.write([with_a_call(ONE)])
    run = run_of(ONE).id
    query = "SELECT position, tenant, run_id, role, text, model, tool, is_error, output_tokens FROM palaver.messages"
    assert [tuple(row.values()) for row in await rows(database, f"{query} ORDER BY position")] == [
        (1, "default", run, "user", "Where is 4711?", None, None, False, None),
        (2, "default", run, "assistant", "", "openai/small", None, False, 20),
        (4, "default", run, "tool", "no", None, "refund", True, None),
        (5, "default", run, "user", "two\n[image]", None, None, False, None),
    ]
    (call,) = await rows(database, f"SELECT * FROM palaver.tool_calls WHERE conversation_id = '{ONE}'")
    assert (call["call_id"], call["tool"], call["arguments"]) == ("call_1", "refund", '{"order":4711}')
    assert (call["is_error"], call["error_class"], call["result"]) == (True, "tool_error", "no")
    assert call["seconds"] == pytest.approx(0.002, abs=0.0011)
    (approval,) = await rows(database, "SELECT call_id, decision, decided_by FROM palaver.approvals")
    assert approval == {"call_id": "call_1", "decision": "approve", "decided_by": "bo"}
    (usage,) = await rows(database, "SELECT * FROM palaver.usage")
    assert (str(usage["day"]), usage["tenant"], usage["model"]) == ("2025-11-30", "default", "openai/small")
    assert (usage["runs"], usage["model_calls"], usage["unpriced_runs"]) == (1, 2, 0)
    assert float(usage["cost_usd"]) == 0.001234567


async def test_views_pass_over_json_that_no_database_reads(database: Database) -> None:
    deep, deeper = ("[" * levels + "]" * levels for levels in (700, 1400))
    texts = [
        '{"message":{"role":"user","content":"a \\u0000 b"}}',
        '{"message":{"role":"user","content":"\\ud83d"}}',
        '{"message":{"role":"user","content":"\\ud83d\\ude00"}}',
        '{"message":',
        "NaN",
        '{"message":{"role":"user","content":"deep"},"x":' + deep + "}",
        '{"message":{"role":"assistant","content":"x","tool_calls":7}}',
        '{"message":{"role":"user","content":"large"},"x":1e400000}',
        '{"message":{"role":"user","content":"deeper"},"x":' + deeper + "}",
    ]
    entries = [ArchivedEntry(at, {**said(at, "", "").fields, "data": text}) for at, text in enumerate(texts, start=1)]
    await database.write([conversation(ONE, entries)])
    found = [row["text"] for row in await rows(database, "SELECT text FROM palaver.messages ORDER BY position")]
    assert found[:3] == ["a \ufffd b", "\ufffd", "\U0001f600"]
    assert found[3:5] == ["", ""]
    assert found[5:] == ["deep", "x", "large", ""]
    await rows(database, "SELECT * FROM palaver.tool_calls")
    assert [entry.fields["data"] for entry in await database.entries(ONE, 0, 10)] == texts


async def test_a_database_without_tables_says_what_to_do(url: str) -> None:
    database = Database.of(url)
    assert await database.revision() is None
    for refused in (database.write([with_a_call(ONE)]), database.entries(ONE, 0, 1), database.size()):
        with pytest.raises(ConfigurationError, match="palaver archive migrate"):
            await refused
    await database.close()


@pytest.mark.parametrize("oldest", [int(newest()), int(newest()) + 1])
async def test_a_newer_schema_is_used_if_this_code_can_and_else_left_alone(database: Database, oldest: int) -> None:
    """A worker of this version goes on beside one of a newer version."""
    async with database._connections.writing() as connection:
        place = "palaver." if database._connections.is_postgresql else ""
        await connection.exec_driver_sql(f"UPDATE {place}alembic_version SET version_num = '9999'")
        await connection.exec_driver_sql(f"UPDATE {place}counters SET value = {oldest} WHERE name = 'oldest'")
    if oldest > int(newest()):
        with pytest.raises(ConfigurationError, match="9999, which is newer"):
            await database.migrate()
    else:
        await database.migrate()
        await database.write([with_a_call(ONE)])
        assert await database.record(ONE) == with_a_call(ONE).fields
    assert await database.revision() == "9999"


async def test_rows_of_the_first_schema_stay_and_are_in_the_new_views(url: str) -> None:
    database = Database.of(url)
    async with database._connections.writing() as connection:
        await connection.run_sync(_migrate, "0001")
    assert await database.revision() == "0001"
    # As a worker of that version does, which may do so beside newer ones later, too.
    await database.write([with_a_call(ONE)])
    await database.migrate()
    assert await database.revision() == newest()
    found = await everything(database, ONE)
    assert found is not None
    assert exactly(found) == exactly(with_a_call(ONE))
    assert [row["step"] for row in await rows(database, "SELECT step FROM palaver.attempts")] == ["1", "1/call_1"]
    await database.close()


async def test_attempts_are_told_with_how_each_ended_and_how_long_it_took(database: Database) -> None:
    run = run_of(ONE)
    overloaded = {"class": "rate_limited", "code": "http_429", "provider": {"name": "openai", "model": "large"}}
    asked = {"role": "assistant", "content": "", "tool_calls": [{"id": each, "name": "look"} for each in "ab"]}

    def result(call: str, **more: Any) -> dict[str, Any]:
        return {"step": f"1/{call}", "message": {"role": "tool", "call_id": call, "name": "look"}, **more}

    log: list[tuple[str, int, dict[str, Any]]] = [
        ("run.started", 0, {}),
        ("run.retrying", 1_000, {"step": "1", "attempt": 1, "delay": 2.5, "error": overloaded}),
        ("message.created", 4_000, {"step": "1", "model": "openai/small", "cost_usd": 0.5, "message": asked}),
        ("action.resolved", 9_000, {"action_id": "act", "call_id": "b", "decision": "approve"}),
        ("tool.finished", 9_500, result("a", error={"class": "tool_error", "code": "boom"})),
        ("step.lost", 10_000, {"step": "1/b", "attempt": 1, "worker": "w"}),
        ("tool.finished", 12_000, result("b")),
        ("message.created", 12_500, {"steer": True, "message": {"role": "user", "content": "go on"}}),
        ("run.finished", 14_000, {"status": "failed", "error": {"class": "timeout", "code": "idle", "step": "2"}}),
    ]
    entries = [
        ArchivedEntry(at, {**entry(at, kind, run.id, data).fields, "at": str(AT + ms)})
        for at, (kind, ms, data) in enumerate(log, 1)
    ]
    await database.write([conversation(ONE, entries, [run]), with_a_call(TWO)])
    columns = "step, call_id, kind, attempt, outcome, error_class, model, tool, seconds, waits"
    query = f"SELECT {columns} FROM palaver.{{}} WHERE conversation_id = '{ONE}' ORDER BY position"
    found = await rows(database, query.format("attempts"))
    assert [[*row.values()][:-2] for row in found] == [
        ["1", None, "model", 1, "failed", "rate_limited", "openai/large", None],
        ["1", None, "model", 2, "completed", None, "openai/small", None],
        ["1/a", "a", "tool", 1, "failed", "tool_error", None, "look"],
        ["1/b", "b", "tool", 1, "lost", None, None, None],
        ["1/b", "b", "tool", 2, "completed", None, None, "look"],
        ["2", None, "model", 1, "failed", "timeout", None, None],
    ]
    assert [row["seconds"] for row in found] == pytest.approx([1, 0.5, 5.5, 1, 2, 1.5], abs=0.002)
    assert [row["waits"] for row in found] == [2.5, None, None, None, None, None]
    steps = await rows(database, query.format("steps").replace("attempt,", "attempts,"))
    assert [(row["step"], row["attempts"], row["outcome"]) for row in steps] == [
        ("1", 2, "completed"),
        ("1/a", 1, "failed"),
        ("1/b", 2, "completed"),
        ("2", 1, "failed"),
    ]
    assert [row["seconds"] for row in steps] == pytest.approx([1.5, 5.5, 3, 1.5], abs=0.005)


async def test_a_call_that_never_began_is_no_attempt(database: Database) -> None:
    run = run_of(ONE)
    denied = {
        "step": "1/a",
        "message": {"role": "tool", "call_id": "a", "name": "look"},
        "error": {"class": "tool_denied"},
    }
    await database.write([conversation(ONE, [entry(1, "tool.finished", run.id, denied)], [run])])
    assert await rows(database, "SELECT * FROM palaver.attempts") == []


async def test_the_migrations_make_the_tables_that_the_code_knows(database: Database) -> None:
    on_postgresql = database._connections.is_postgresql

    def of_the_migrations(connection: Connection) -> dict[str, Any]:
        found = inspect(connection)
        schema = SCHEMA if on_postgresql else None
        if on_postgresql:
            options = {"version_table_schema": SCHEMA, "include_schemas": True}
            options["include_name"] = lambda name, kind, _: kind != "schema" or name == SCHEMA
            # Types, keys and whether there may be NULL, too.
            assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []
        tables = {*found.get_table_names(schema)} - {"alembic_version"}
        return {
            name: (
                [column["name"] for column in found.get_columns(name, schema)],
                {index["name"] for index in found.get_indexes(name, schema)},
            )
            for name in tables
        }

    async with database._connections.reading() as connection:
        assert await connection.run_sync(of_the_migrations) == {
            table.name: (table.columns.keys(), {index.name for index in table.indexes})
            for table in METADATA.sorted_tables
        }
    assert await database.revision() == newest()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u:secret@h/d", "has to be postgresql://"),
        ("secret", "has to be postgresql://"),
        ("sqlite://", "has to name a file"),
        ("sqlite:///", "has to name a file"),
        ("sqlite:///:memory:", "has to name a file"),
        ("sqlite:////secret?mode=ro", "has to name a file"),
        ("postgresql://u:secret@h/d?no_such=1", "libpq"),
    ],
)
def test_another_address_is_refused_without_a_word_of_it(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        Database.of(url)
    assert "secret" not in str(refused.value)


def test_a_password_is_never_shown() -> None:
    database = Database.of("postgresql://u:secret@db.example/palaver?sslmode=require")
    assert repr(database) == "<Database palaver at db.example>"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == "sqlalchemy" or name.startswith("features.archive.connections"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'palaver\[archive\]'"):
        Database.of("sqlite:///a")


@pytest.mark.process
def test_nothing_of_it_is_imported_before_a_database_is_used() -> None:
    program = (
        "import sys; import features.archive.database, features.archive.records, features.archive.errors;"
        "print({'sqlalchemy', 'alembic', 'psycopg', 'aiosqlite'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


async def test_what_is_old_is_found_by_the_clock_of_the_database(database: Database) -> None:
    old, new = conversation_id("old"), conversation_id("new")
    now = int(time.time() * 1000)
    await database.write([conversation(old, updated_at="1000"), conversation(new, updated_at=str(now - 90_000_000))])
    places = [(1000, old), (now - 90_000_000, new)]
    assert await database.older_than(86_400 * 365, 10) == places[:1]
    assert await database.older_than(86_400, 10) == places
    assert await database.older_than(86_400, 1) == places[:1]
    assert await database.older_than(86_400, 1, places[0]) == places[1:]
    assert await database.older_than(86_400 * 2, 10) == places[:1]


async def test_a_deletion_is_of_what_began_before_it(database: Database) -> None:
    await database.write([conversation(ONE, created_at="5000")])
    await database.forget_conversations([ONE], deleted_at={ONE: 5000})
    assert await database.record(ONE) is not None
    await database.forget_conversations([ONE], deleted_at={ONE: 5001})
    assert await database.record(ONE) is None
