"""Statements that look for runs and conversations by what they have in common.

A statement looks at some thousand rows in the order of an index, and takes those that fit: however few these are, it
takes no longer. Conditions leave out none that fits. A run is looked at once more, by its record, for what no column
says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import (
    Column,
    ColumnElement,
    Select,
    Table,
    Tuple,
    and_,
    func,
    literal,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from palaver.schemas.conversation import ConversationFilter, ConversationOrder
from palaver.schemas.filters import RunFilter, possible_statuses
from palaver.store.reading.finding import Place
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import limit_of

from .records import FoundRecord
from .rows import fields_of, moment_of, place_of, plain, tenant_column
from .tables import CONVERSATIONS, RUNS, Moment

_LOOKED: Final = limit_of("list_looked")
"""Rows that one statement looks at."""
_ENDED: Final = frozenset(status.value for status in RunStatus if status.terminal)
_NEARLY_ONE: Final = timedelta(microseconds=999)
"""What makes the next millisecond of a time that is within one."""
_Condition = ColumnElement[bool]


class Found(NamedTuple):
    """The records of a list that were found, in order."""

    records: Sequence[FoundRecord]
    end: Place | None
    """The place up to which was looked; None if there is nothing behind."""


async def find_runs(
    connection: AsyncConnection,
    admitted: RunFilter,
    tenant: str | None,
    until: Place | None,
    place: Place | None,
    limit: int,
) -> Found:
    """Return the next runs behind a place, newest first, and none beyond ``until``."""
    of = _List(RUNS, "created_at", ascending=False)
    within = [*_of_tenant(RUNS, tenant), *of.until(until), *_after(RUNS.c.created_at, admitted.get("created_after"))]
    if (only := admitted.get("conversation_id")) is not None:
        within.append(RUNS.c.conversation_id == only)
    return await _find(connection, of, within, [*_run_conditions(connection, admitted)], place, limit)


async def find_conversations(
    connection: AsyncConnection,
    admitted: ConversationFilter,
    tenant: str | None,
    order: ConversationOrder,
    until: Place | None,
    place: Place | None,
    limit: int,
) -> Found:
    """Return the next conversations behind a place, in that order, and none beyond ``until``."""
    of = _List(CONVERSATIONS, f"{order.removeprefix('-')}_at", ascending=not order.startswith("-"))
    within = [*_of_tenant(CONVERSATIONS, tenant), *of.until(until), *_times(of.by, admitted)]
    return await _find(connection, of, within, [*_conversation_conditions(connection, admitted)], place, limit)


async def run_counts(
    connection: AsyncConnection, tenant: str | None, after: datetime | None, before: datetime | None, most: int
) -> tuple[Mapping[str, int], bool]:
    """Return the number of runs in each status that is an end, of the ``most`` newest that were created between these
    times, and whether these are all."""
    within = [*_of_tenant(RUNS, tenant), *_after(RUNS.c.created_at, after), *_before(RUNS.c.created_at, before)]
    newest = _List(RUNS, "created_at", ascending=False).behind(None, within, RUNS.c.status).limit(most).subquery()
    counted = select(newest.c.status, func.count()).group_by(newest.c.status)
    counts = [(status, count) for status, count in await connection.execute(counted)]
    # The store counts what goes on.
    ended = {status: count for status, count in counts if status in _ENDED}
    return ended, sum(count for _, count in counts) < most


async def count_conversations(
    connection: AsyncConnection, admitted: ConversationFilter, tenant: str | None, most: int
) -> tuple[int, bool]:
    """Return the number of conversations that fit, of the ``most`` newest, and whether these are all."""
    of, within = _List(CONVERSATIONS, "created_at", ascending=False), [*_of_tenant(CONVERSATIONS, tenant)]
    end = await _end(connection, of, within, None, most)
    counted = select(func.count()).where(*within, *of.until(end), *_conversation_conditions(connection, admitted))
    return (await connection.execute(counted.select_from(CONVERSATIONS))).scalar_one(), end is None


async def older_than(connection: AsyncConnection, seconds: float, limit: int, place: Place | None) -> Sequence[Place]:
    """Return the next conversations behind a place in which nothing has happened for so long."""
    now = (await connection.execute(select(func.now()))).scalar_one()
    until = now.replace(tzinfo=now.tzinfo or UTC) - timedelta(seconds=seconds)
    of = _List(CONVERSATIONS, "updated_at", ascending=True)
    old = of.behind(place, [of.by < until], CONVERSATIONS.c.id, of.by).limit(limit)
    return [(place_of(row.updated_at), row.id) for row in await connection.execute(old)]


class _List:
    """The rows of a table in the order of a time, those of one time by their ids."""

    def __init__(self, table: Table, by: str, *, ascending: bool) -> None:
        self.by: Column[Any] = table.c[by]
        self._here = tuple_(self.by, table.c.id)
        self._ascending = ascending

    def until(self, place: Place | None) -> Iterator[_Condition]:
        """Yield the condition for what is not beyond a place."""
        if place is not None:
            yield self._here <= _tuple(place) if self._ascending else self._here >= _tuple(place)

    def behind(self, place: Place | None, within: Iterable[_Condition], *columns: ColumnElement[Any]) -> Select[Any]:
        """Return the statement for these columns of what is behind a place."""
        wanted = select(*columns).where(self.by.is_not(None), *within)
        if place is not None:
            wanted = wanted.where(self._here > _tuple(place) if self._ascending else self._here < _tuple(place))
        keys = (self.by, self.by.table.c.id)
        return wanted.order_by(*(keys if self._ascending else [key.desc() for key in keys]))


async def _find(
    connection: AsyncConnection,
    of: _List,
    within: Sequence[_Condition],
    fits: Sequence[_Condition],
    place: Place | None,
    limit: int,
) -> Found:
    end = await _end(connection, of, within, place, _LOOKED) if fits else None
    columns = (of.by.table.c.id, of.by.label("at"), of.by.table.c.record)
    wanted = of.behind(place, [*within, *of.until(end), *fits], *columns).limit(limit)
    records = [
        FoundRecord(row.id, (place_of(row.at), row.id), fields_of(row.record))
        for row in await connection.execute(wanted)
    ]
    return Found(records, records[-1].place if len(records) == limit else end)


async def _end(
    connection: AsyncConnection, of: _List, within: Sequence[_Condition], place: Place | None, rows: int
) -> Place | None:
    """Return the place so many rows further; None if there are fewer."""
    last = of.behind(place, within, of.by.table.c.id, of.by.label("at")).offset(rows - 1).limit(1)
    found = (await connection.execute(last)).one_or_none()
    return None if found is None else (place_of(found.at), found.id)


def _of_tenant(table: Table, tenant: str | None) -> Iterator[_Condition]:
    """Yield the condition for what a tenant has; nothing for all tenants."""
    if tenant is not None:
        yield table.c.tenant == tenant_column(tenant)


def _run_conditions(connection: AsyncConnection, admitted: RunFilter) -> Iterator[_Condition]:
    columns = RUNS.c
    if (possible := possible_statuses(admitted)) is not None:
        yield columns.status.in_(possible)
    for name in ("stop_reason", "submitted_by", "model", "error_class", "error_code"):
        if isinstance(value := admitted.get(name), str):
            yield columns[name] == plain(value)
    if (agent := admitted.get("agent")) is not None:
        yield columns.agent.in_([plain(agent), plain(agent.rpartition("@")[0])])
    if (provider := admitted.get("provider")) is not None:
        yield columns.model.startswith(f"{plain(provider)}/", autoescape=True)
    yield from _described(connection, RUNS, admitted.get("tag"), admitted.get("metadata"))
    yield from _before(columns.created_at, admitted.get("created_before"))
    yield from _after(columns.ended_at, admitted.get("ended_after"))
    yield from _before(columns.ended_at, admitted.get("ended_before"))


def _conversation_conditions(connection: AsyncConnection, admitted: ConversationFilter) -> Iterator[_Condition]:
    columns = CONVERSATIONS.c
    if (title := admitted.get("title")) is not None:
        yield columns.folded.contains(plain(title.casefold()), autoescape=True)
    if (status := admitted.get("status")) is not None:
        named = status.split(",") if isinstance(status, str) else [*status]
        yield func.coalesce(columns.last_status, "idle").in_(named)
    yield from _described(connection, CONVERSATIONS, admitted.get("tag"), admitted.get("metadata"))
    for name in ("created_at", "updated_at"):
        yield from _times(columns[name], admitted)


def _times(column: Column[Any], admitted: ConversationFilter) -> Iterator[_Condition]:
    """Yield the conditions for a time of a conversation. What limits it is part of it."""
    name = column.name.removesuffix("_at")
    after, before = (cast(Any, admitted.get(f"{name}_{edge}")) for edge in ("after", "before"))
    if after is not None:
        yield column >= _whole(after)
    if before is not None:
        yield column <= _whole(before)


def _described(
    connection: AsyncConnection, table: Table, tag: str | None, metadata: Mapping[str, str] | None
) -> Iterator[_Condition]:
    """Yield the conditions for what has a tag and all of these entries."""
    entries = {plain(name): plain(value) for name, value in (metadata or {}).items()}
    if connection.dialect.name == "postgresql":
        if tag is not None:
            yield type_coerce(table.c.tags, JSONB).contains([plain(tag)])
        if entries:
            yield type_coerce(table.c.metadata, JSONB).contains(entries)
        return
    if tag is not None:
        each = func.json_each(table.c.tags).table_valued("value")
        yield select(each.c.value).where(each.c.value == plain(tag)).exists()
    for name, value in entries.items():
        each = func.json_each(table.c.metadata).table_valued("key", "value")
        yield select(each.c.value).where(and_(each.c.key == name, each.c.value == value)).exists()


def _after(column: Column[Any], moment: datetime | None) -> Iterator[_Condition]:
    if moment is not None:
        yield column > _whole(moment)


def _before(column: Column[Any], moment: datetime | None) -> Iterator[_Condition]:
    if moment is not None:
        yield column < _whole(moment + _NEARLY_ONE)


def _whole(moment: datetime) -> datetime:
    """Return the millisecond that a time is within."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _tuple(place: Place) -> Tuple:
    """Return a place as rows are compared with it. Raises ValueError for one of a cursor that no list gave."""
    return tuple_(literal(moment_of(place[0]), Moment), literal(place[1]))
