"""Statements that read the archive, each within the transaction of its caller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Table, func, literal_column, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from .records import ArchivedEntry, ArchivedRun
from .rows import Row, conversation_row, entry_of, entry_row, fields_of, run_of, run_row, tenant_column
from .tables import ACTS, CONVERSATIONS, ENTRIES, IS_UNFINISHED, KEPT, RUNS, SCHEMA

_READ_BACK: Final = tuple(
    ENTRIES.c[name] for name in ("position", "type", "at", "run_id", "seq", "data", "opaque", "exact")
)
_COUNTED: Final = 100_000
"""Rows of a table beyond which an estimate is taken, PostgreSQL's own or the last number of a row of SQLite's: to count
them takes longer the more there are."""
_ESTIMATES: Final = text(
    "SELECT relname, reltuples::bigint AS rows, pg_total_relation_size(oid) AS bytes FROM pg_class"
    " WHERE relnamespace = CAST(:schema AS regnamespace) AND relkind IN ('r', 'p')"
)
_PAGES: Final = text("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")


async def revision(connection: AsyncConnection) -> str | None:
    """Return the revision of the schema; None if there is none yet."""
    if connection.dialect.name == "postgresql":
        there = text(f"SELECT to_regclass('{SCHEMA}.alembic_version') IS NOT NULL")
        of = f"{SCHEMA}.alembic_version"
    else:
        there = text("SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'")
        of = "alembic_version"
    if not (await connection.execute(there)).scalar_one():
        return None
    return (await connection.execute(text(f"SELECT version_num FROM {of}"))).scalar_one_or_none()


async def conversation_of(connection: AsyncConnection, run_id: str) -> str | None:
    """Return the id of the conversation of a run."""
    found = await connection.execute(select(RUNS.c.conversation_id).where(RUNS.c.id == run_id))
    return found.scalar_one_or_none()


async def conversation(connection: AsyncConnection, conversation_id: str) -> Mapping[str, str] | None:
    """Return the fields of a conversation."""
    found = await connection.execute(select(CONVERSATIONS.c.record).where(CONVERSATIONS.c.id == conversation_id))
    record = found.scalar_one_or_none()
    return None if record is None else fields_of(record)


async def run(connection: AsyncConnection, run_id: str) -> ArchivedRun | None:
    """Return a run."""
    row = (await connection.execute(select(RUNS.c.id, RUNS.c.record).where(RUNS.c.id == run_id))).one_or_none()
    return None if row is None else run_of(row)


async def last_act(connection: AsyncConnection, tag: str) -> str | None:
    """Return the id of the last act of a tenant."""
    own = select(ACTS.c.id).where(ACTS.c.tenant == tenant_column(tag))
    # Of one millisecond the one with the longer number is behind.
    newest = own.order_by(ACTS.c.at.desc(), func.length(ACTS.c.id).desc(), ACTS.c.id.desc()).limit(1)
    return (await connection.execute(newest)).scalar_one_or_none()


async def unfinished_runs(connection: AsyncConnection, conversation_id: str) -> Sequence[ArchivedRun]:
    """Return the runs of a conversation that had not ended when they were archived."""
    own = select(RUNS.c.id, RUNS.c.record).where(RUNS.c.conversation_id == conversation_id, *IS_UNFINISHED)
    return [run_of(row) for row in await connection.execute(own)]


async def unfinished(connection: AsyncConnection, after: str, limit: int) -> Sequence[str]:
    """Return the next ids behind ``after`` of conversations with such runs, in order."""
    of = RUNS.c.conversation_id
    wanted = select(of).distinct().where(of > after, *IS_UNFINISHED).order_by(of).limit(limit)
    return [*(await connection.execute(wanted)).scalars()]


async def runs(connection: AsyncConnection, ids: Sequence[str]) -> Sequence[ArchivedRun]:
    """Return those of these runs that are here."""
    return [run_of(row) for row in await connection.execute(select(RUNS.c.id, RUNS.c.record).where(RUNS.c.id.in_(ids)))]


async def latest_runs(connection: AsyncConnection, conversation_id: str, limit: int) -> Sequence[ArchivedRun]:
    """Return the newest runs of a conversation, the newest first."""
    own = select(RUNS.c.id, RUNS.c.record).where(RUNS.c.conversation_id == conversation_id)
    newest = own.order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc()).limit(limit)
    return [run_of(row) for row in await connection.execute(newest)]


async def ids(connection: AsyncConnection, after: str, limit: int) -> Sequence[str]:
    """Return the next ids of conversations behind ``after``, in order."""
    wanted = select(CONVERSATIONS.c.id).where(CONVERSATIONS.c.id > after).order_by(CONVERSATIONS.c.id).limit(limit)
    return [*(await connection.execute(wanted)).scalars()]


async def amiss(connection: AsyncConnection, conversation_id: str) -> Sequence[str]:
    """Return which columns of a conversation and of its rows say something else than their records."""
    found = list[str]()
    for row in await connection.execute(select(CONVERSATIONS).where(CONVERSATIONS.c.id == conversation_id)):
        found += _amiss(conversation_row(row.id, fields_of(row.record)), row, "it")
    for row in await connection.execute(select(RUNS).where(RUNS.c.conversation_id == conversation_id)):
        found += _amiss(run_row(conversation_id, run_of(row)), row, row.id)
    for row in await connection.execute(select(ENTRIES).where(ENTRIES.c.conversation_id == conversation_id)):
        found += _amiss(entry_row(conversation_id, entry_of(row)), row, f"its entry {row.position}")
    return found


def _amiss(expected: Row, row: Any, what: str) -> Iterator[str]:
    for name, value in expected.items():
        if name != "record" and row._mapping[name] != value:
            yield f"the column {name} of {what} says something else"


async def entries(
    connection: AsyncConnection, conversation_id: str, after: int, limit: int, most_bytes: int
) -> Sequence[ArchivedEntry]:
    """Return the next entries behind a position: as many as there are within both limits, and at least one of any
    size."""
    total = func.sum(ENTRIES.c.bytes).over(order_by=ENTRIES.c.position)
    first = func.row_number().over(order_by=ENTRIES.c.position)
    page = (
        select(*_READ_BACK, total.label("total"), first.label("place"))
        .where(ENTRIES.c.conversation_id == conversation_id, ENTRIES.c.position > after)
        .order_by(ENTRIES.c.position)
        .limit(limit)
        .subquery()
    )
    within = select(page).where(or_(page.c.total <= most_bytes, page.c.place == 1)).order_by(page.c.position)
    return [entry_of(row) for row in await connection.execute(within)]


async def size(connection: AsyncConnection) -> Mapping[str, int]:
    """Return the rows of each table, and ``bytes``, those of all tables with their indexes."""
    if connection.dialect.name == "postgresql":
        known = {row.relname: row for row in await connection.execute(_ESTIMATES, {"schema": SCHEMA})}
        about, whole = {name: row.rows for name, row in known.items()}, sum(row.bytes for row in known.values())
    else:
        about = {table.name: await _last_number(connection, table) for table in KEPT}
        whole = (await connection.execute(_PAGES)).scalar_one()
    sizes = {table.name: about[table.name] for table in KEPT}
    for table in KEPT:
        if sizes[table.name] < _COUNTED:
            sizes[table.name] = await _count(connection, table)
    return {**sizes, "bytes": whole}


async def _last_number(connection: AsyncConnection, table: Table) -> int:
    return (await connection.execute(select(func.max(literal_column("rowid"))).select_from(table))).scalar_one() or 0


async def _count(connection: AsyncConnection, table: Table) -> int:
    return (await connection.execute(select(func.count()).select_from(table))).scalar_one()
