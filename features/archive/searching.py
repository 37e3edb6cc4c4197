"""Statements that look for runs and conversations by what they have in common.

Conditions on columns leave out none that fits. A run is looked at once more, by its record, for what no column says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

from sqlalchemy import Column, ColumnElement, Table, Tuple, and_, func, literal, select, tuple_, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from palaver.schemas.conversation import ConversationFilter, ConversationOrder
from palaver.schemas.filters import RunFilter, possible_statuses
from palaver.store.reading.finding import Place

from .records import FoundRecord
from .rows import EPOCH, MILLISECOND, fields_of, plain, tenant_column
from .tables import CONVERSATIONS, RUNS, Moment

_NEARLY_ONE: Final = timedelta(microseconds=999)
"""What makes the next millisecond of a time that is within one."""


async def find_runs(
    connection: AsyncConnection,
    admitted: RunFilter,
    tenant: str | None,
    until: Place | None,
    place: Place | None,
    limit: int,
) -> Sequence[FoundRecord]:
    """Return the next runs behind a place, newest first, and none beyond ``until``."""
    conditions = [*_of_tenant(RUNS, tenant), *_run_conditions(connection, admitted)]
    return await _find(connection, RUNS, RUNS.c.created_at, conditions, until, place, limit, ascending=False)


async def find_conversations(
    connection: AsyncConnection,
    admitted: ConversationFilter,
    tenant: str | None,
    order: ConversationOrder,
    until: Place | None,
    place: Place | None,
    limit: int,
) -> Sequence[FoundRecord]:
    """Return the next conversations behind a place, in that order, and none beyond ``until``."""
    by = CONVERSATIONS.c.updated_at if order.endswith("updated") else CONVERSATIONS.c.created_at
    conditions = [*_of_tenant(CONVERSATIONS, tenant), *_conversation_conditions(connection, admitted)]
    ascending = not order.startswith("-")
    return await _find(connection, CONVERSATIONS, by, conditions, until, place, limit, ascending=ascending)


async def run_counts(
    connection: AsyncConnection, tenant: str | None, after: datetime | None, before: datetime | None
) -> Mapping[str, int]:
    """Return the number of runs in each status, of those that were created between these times."""
    within = [*_of_tenant(RUNS, tenant), *_after(RUNS.c.created_at, after), *_before(RUNS.c.created_at, before)]
    counted = select(RUNS.c.status, func.count()).where(*within).group_by(RUNS.c.status)
    return {status: count for status, count in await connection.execute(counted) if status is not None}


async def count_conversations(
    connection: AsyncConnection, admitted: ConversationFilter, tenant: str | None, most: int
) -> int:
    """Return the number of conversations that fit, up to ``most``."""
    conditions = [*_of_tenant(CONVERSATIONS, tenant), *_conversation_conditions(connection, admitted)]
    some = select(CONVERSATIONS.c.id).where(*conditions).limit(most).subquery()
    return (await connection.execute(select(func.count()).select_from(some))).scalar_one()


async def _find(
    connection: AsyncConnection,
    table: Table,
    by: Column[Any],
    conditions: Sequence[ColumnElement[bool]],
    until: Place | None,
    place: Place | None,
    limit: int,
    *,
    ascending: bool,
) -> Sequence[FoundRecord]:
    wanted = select(table.c.id, by.label("at"), table.c.record).where(by.is_not(None), *conditions)
    here = tuple_(by, table.c.id)
    if place is not None:
        wanted = wanted.where(here > _tuple(place) if ascending else here < _tuple(place))
    if until is not None:
        wanted = wanted.where(here <= _tuple(until) if ascending else here >= _tuple(until))
    keys = (by, table.c.id) if ascending else (by.desc(), table.c.id.desc())
    rows = await connection.execute(wanted.order_by(*keys).limit(limit))
    return [FoundRecord(row.id, ((row.at - EPOCH) // MILLISECOND, row.id), fields_of(row.record)) for row in rows]


def _of_tenant(table: Table, tenant: str | None) -> Iterator[ColumnElement[bool]]:
    """Yield the condition for what a tenant has; nothing for all tenants."""
    if tenant is not None:
        yield table.c.tenant == tenant_column(tenant)


def _run_conditions(connection: AsyncConnection, admitted: RunFilter) -> Iterator[ColumnElement[bool]]:
    if (possible := possible_statuses(admitted)) is not None:
        yield RUNS.c.status.in_(possible)
    for name in ("stop_reason", "conversation_id", "submitted_by", "model", "error_class", "error_code"):
        if isinstance(value := admitted.get(name), str):
            yield RUNS.c[name] == plain(value)
    if (agent := admitted.get("agent")) is not None:
        yield RUNS.c.agent.in_([plain(agent), plain(agent.rpartition("@")[0])])
    if (provider := admitted.get("provider")) is not None:
        yield RUNS.c.model.startswith(f"{plain(provider)}/", autoescape=True)
    yield from _described(connection, RUNS, admitted.get("tag"), admitted.get("metadata"))
    for name in ("created", "ended"):
        column = RUNS.c[f"{name}_at"]
        yield from _after(column, cast(Any, admitted.get(f"{name}_after")))
        yield from _before(column, cast(Any, admitted.get(f"{name}_before")))


def _conversation_conditions(
    connection: AsyncConnection, admitted: ConversationFilter
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions for what fits. Times are part of what they limit."""
    if (title := admitted.get("title")) is not None:
        yield CONVERSATIONS.c.folded.contains(plain(title.casefold()), autoescape=True)
    if (status := admitted.get("status")) is not None:
        named = status.split(",") if isinstance(status, str) else [*status]
        yield func.coalesce(CONVERSATIONS.c.last_status, "idle").in_(named)
    yield from _described(connection, CONVERSATIONS, admitted.get("tag"), admitted.get("metadata"))
    for name in ("created", "updated"):
        column = CONVERSATIONS.c[f"{name}_at"]
        after, before = (cast(Any, admitted.get(f"{name}_{edge}")) for edge in ("after", "before"))
        if after is not None:
            yield column >= _whole(after)
        if before is not None:
            yield column <= _whole(before)


def _described(
    connection: AsyncConnection, table: Table, tag: str | None, metadata: Mapping[str, str] | None
) -> Iterator[ColumnElement[bool]]:
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


def _after(column: Column[Any], moment: datetime | None) -> Iterator[ColumnElement[bool]]:
    if moment is not None:
        yield column > _whole(moment)


def _before(column: Column[Any], moment: datetime | None) -> Iterator[ColumnElement[bool]]:
    if moment is not None:
        yield column < _whole(moment + _NEARLY_ONE)


def _whole(moment: datetime) -> datetime:
    """Return the millisecond that a time is within."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _tuple(place: Place) -> Tuple:
    at, any_id = place
    return tuple_(literal(EPOCH + at * MILLISECOND, Moment), literal(any_id))
