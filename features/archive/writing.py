"""Statements that write into the archive, each within the transaction of its caller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Table, bindparam, delete, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from .errors import ArchiveOvertaken
from .records import ArchivedConversation, ArchivedVersions
from .rows import Row, conversation_row, entry_row, run_row, tenant_column
from .tables import CONVERSATIONS, COUNTERS, ENTRIES, KEPT, RUNS

FORGOTTEN: Final = "forgotten"
"""The counter of deletions."""
_ENTRIES: Final = 500
"""Rows of entries that go to the database at once."""


async def write(
    connection: AsyncConnection, conversations: Sequence[ArchivedConversation], since: ArchivedVersions | None
) -> None:
    """Write conversations, with what of each is given.

    Raises:
        ArchiveOvertaken: one of them is not what it was at ``since``.
    """
    # In one order for all: writers of the same rows wait for each other, and none for ever.
    ordered = sorted(conversations, key=lambda each: each.id)
    if since is not None:
        await _require_unchanged(connection, [each.id for each in ordered], since)
    own = [{**conversation_row(each.id, each.fields), "version": 1} for each in ordered]
    await _put(connection, CONVERSATIONS, own)
    behind = delete(ENTRIES).where(
        ENTRIES.c.conversation_id == bindparam("of"), ENTRIES.c.position > bindparam("behind")
    )
    await connection.execute(behind, [{"of": each.id, "behind": each.after} for each in ordered])
    rows: list[Row] = []
    for each in ordered:
        for entry in each.entries:
            rows.append(entry_row(each.id, entry))
            if len(rows) == _ENTRIES:
                await connection.execute(ENTRIES.insert(), rows)
                rows = []
    if rows:
        await connection.execute(ENTRIES.insert(), rows)
    runs = sorted(((each.id, run) for each in ordered for run in each.runs), key=lambda pair: pair[1].id)
    if runs:
        await _put(connection, RUNS, [run_row(conversation_id, run) for conversation_id, run in runs])


async def versions(connection: AsyncConnection, ids: Sequence[str], *, lock: bool = False) -> ArchivedVersions:
    """Return the versions of those conversations that are there; with ``lock`` they stay what they are until the end of
    the transaction."""
    counter = select(COUNTERS.c.value).where(COUNTERS.c.name == FORGOTTEN)
    wanted = select(CONVERSATIONS.c.id, CONVERSATIONS.c.version).where(CONVERSATIONS.c.id.in_(ids))
    wanted = wanted.order_by(CONVERSATIONS.c.id)
    if lock:
        counter, wanted = counter.with_for_update(read=True), wanted.with_for_update()
    forgotten = (await connection.execute(counter)).scalar_one()
    found = await connection.execute(wanted)
    return ArchivedVersions({row.id: row.version for row in found}, forgotten)


async def forget_conversations(connection: AsyncConnection, ids: Iterable[str]) -> None:
    """Delete conversations, with their runs and entries."""
    await _note_deletion(connection)
    await connection.execute(delete(CONVERSATIONS).where(CONVERSATIONS.c.id.in_(sorted(set(ids)))))


async def forget_runs(connection: AsyncConnection, ids: Iterable[str]) -> None:
    """Delete runs, and their entries in the logs of their conversations."""
    wanted = sorted(set(ids))
    found = await connection.execute(select(RUNS.c.conversation_id, RUNS.c.id).where(RUNS.c.id.in_(wanted)))
    places = [(row.conversation_id, row.id) for row in found]
    await _note_change(connection, {conversation_id for conversation_id, _ in places})
    await connection.execute(
        delete(ENTRIES).where(
            ENTRIES.c.conversation_id.in_({conversation_id for conversation_id, _ in places}),
            tuple_(ENTRIES.c.conversation_id, ENTRIES.c.run_id).in_(places),
        )
    )
    await connection.execute(delete(RUNS).where(RUNS.c.id.in_(wanted)))


async def forget_entries_not_in(
    connection: AsyncConnection, conversation_id: str, positions: Iterable[int], through: int
) -> int:
    """Delete the entries of a conversation up to the position ``through`` that are not at these positions. Return how
    many they were."""
    await _note_change(connection, {conversation_id})
    own = ENTRIES.c.conversation_id == conversation_id, ENTRIES.c.position <= through
    there = (await connection.execute(select(ENTRIES.c.position).where(*own))).scalars()
    gone = sorted({*there}.difference(positions))
    for place in range(0, len(gone), _ENTRIES):
        some = gone[place : place + _ENTRIES]
        await connection.execute(delete(ENTRIES).where(own[0], ENTRIES.c.position.in_(some)))
    return len(gone)


async def forget_tenant(connection: AsyncConnection, tag: str, limit: int) -> dict[str, int]:
    """Delete up to ``limit`` rows of a tenant: its entries before its runs, and these before its conversations. Return
    how many of each table, by name."""
    counts = dict.fromkeys((table.name for table in KEPT), 0)
    await _note_deletion(connection)
    tenant = tenant_column(tag)
    # None of them may get new entries meanwhile.
    own = select(CONVERSATIONS.c.id).where(CONVERSATIONS.c.tenant == tenant).order_by(CONVERSATIONS.c.id).limit(limit)
    ids = (await connection.execute(own.with_for_update())).scalars().all()
    left = limit
    for table in (ENTRIES, RUNS):
        keys = [*table.primary_key.columns]
        some = select(*keys).where(table.c.conversation_id.in_(ids)).limit(left)
        result = await connection.execute(delete(table).where(tuple_(*keys).in_(some)))
        counts[table.name] = result.rowcount
        left -= result.rowcount
    if left:
        empty = ids[:left]
        result = await connection.execute(delete(CONVERSATIONS).where(CONVERSATIONS.c.id.in_(empty)))
        counts[CONVERSATIONS.name] = result.rowcount
    return counts


async def _put(connection: AsyncConnection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows, each in the place of the one with its id."""
    made = postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
    changed: dict[str, Any] = {column.name: made.excluded[column.name] for column in table.c if column.name != "id"}
    if table is CONVERSATIONS:
        changed["version"] = table.c.version + 1
    await connection.execute(made.on_conflict_do_update(index_elements=["id"], set_=changed), rows)


async def _require_unchanged(connection: AsyncConnection, ids: Sequence[str], since: ArchivedVersions) -> None:
    now = await versions(connection, ids, lock=True)
    changed = [each for each in ids if now.versions.get(each) != since.versions.get(each)]
    if now.forgotten != since.forgotten:
        changed += [each for each in ids if each not in now.versions and each not in changed]
    if changed:
        raise ArchiveOvertaken(changed)


async def _note_deletion(connection: AsyncConnection) -> None:
    """What was looked up before this and was not there is void."""
    await connection.execute(update(COUNTERS).where(COUNTERS.c.name == FORGOTTEN).values(value=COUNTERS.c.value + 1))


async def _note_change(connection: AsyncConnection, ids: Iterable[str]) -> None:
    """What was looked up of these conversations before this is void, and none is written until this is done."""
    changed = select(CONVERSATIONS.c.id).where(CONVERSATIONS.c.id.in_(sorted(ids))).order_by(CONVERSATIONS.c.id)
    there = (await connection.execute(changed.with_for_update())).scalars().all()
    new = CONVERSATIONS.c.version + 1
    await connection.execute(update(CONVERSATIONS).where(CONVERSATIONS.c.id.in_(there)).values(version=new))
