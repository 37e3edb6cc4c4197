"""The page of the tables says what there is, and its questions are answered."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import Connection, inspect

from features.archive.database import Database
from features.archive.tables import SCHEMA
from features.archive.tests.conversations import conversation, conversation_id, run_of, said, with_a_call
from tests.pages import ROOT
from tests.postgres import PostgresServer, running_postgres

pytestmark = pytest.mark.process
PAGE = (ROOT / "docs" / "reference" / "archive.md").read_text()
QUESTIONS = re.findall(r"^-- (\d+\..*?)\n(.*?;)$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
async def database(server: PostgresServer) -> AsyncIterator[Database]:
    database = Database.of(server.new_database())
    await database.migrate()
    failed = run_of(conversation_id("two"), status="failed", error='{"class":"timeout","code":"idle","message":"late"}')
    two = conversation(conversation_id("two"), [said(1, failed.id, "a refund, please")], [failed])
    await database.write([with_a_call(conversation_id("one")), two])
    yield database
    await database.close()


async def test_each_column_is_there_and_on_the_page(database: Database) -> None:
    def columns(connection: Connection) -> dict[str, list[str]]:
        known = inspect(connection)
        names = [*known.get_table_names(SCHEMA), *known.get_view_names(SCHEMA)]
        return {name: [column["name"] for column in known.get_columns(name, SCHEMA)] for name in names}

    async with database._connections.reading() as connection:
        there = await connection.run_sync(columns)
    told = {
        name: re.findall(r"`(\w+)`", columns)
        for name, columns in re.findall(r"^\| `(\w+)` \| .*? \| (`.*) \|$", PAGE, re.MULTILINE)
    }
    assert told == {name: names for name, names in there.items() if name not in ("alembic_version", "counters")}


def test_there_are_twelve_questions() -> None:
    assert [int(question.partition(".")[0]) for question, _ in QUESTIONS] == [*range(1, 13)]


@pytest.mark.parametrize(("question", "query"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
async def test_each_question_has_an_answer(database: Database, question: str, query: str) -> None:
    async with database._connections.reading() as connection:
        assert (await connection.exec_driver_sql(query.replace("%", "%%"))).all()
