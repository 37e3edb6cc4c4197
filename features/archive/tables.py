"""The tables of the archive, as SQLAlchemy knows them. The migrations make them.

On PostgreSQL they are in the schema ``palaver``, beside what else the database has; a file of SQLite has no schemas.
Each row says its ``tenant``: its tag, or ``default``. Times are UTC; SQLite has them as text, such as
``2026-11-29T16:04:05.123Z``. Costs are US dollars, NULL where the price of a call was unknown.

    conversations    a conversation: its newest state, sums over its runs, and ``record``, the exact hash
    runs             a run: status, times, usage, error, and ``record``, the exact hash
    entries          the log of a conversation: a row for each event that is kept, by position. ``data`` and ``opaque``
                     are the exact texts; ``readable`` is there where ``data`` is no JSON that databases read, ``exact``
                     where an entry has other fields than the columns say
    acts             the audit log: what was done with keys
    counters         numbers of the archive itself
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

from palaver.vocabulary.lifecycle import RunStatus

NEWEST: Final = "0002"
"""The newest revision that this code knows."""
SCHEMA: Final = "palaver"
METADATA: Final = MetaData(schema=SCHEMA)
_NANODOLLARS: Final = -9


class Moment(TypeDecorator[datetime]):
    """A time, in UTC and to the millisecond."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """A text on SQLite."""
        return dialect.type_descriptor(String(24) if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """The value for the driver."""
        if value is None or dialect.name != "sqlite":
            return value
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """The value of the driver."""
        if value is None:
            return None
        return (datetime.fromisoformat(value) if dialect.name == "sqlite" else value).astimezone(UTC)


class Dollars(TypeDecorator[int]):
    """US dollars, written and read as whole nanodollars."""

    impl = Numeric(20, 9)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """A floating point number on SQLite, which has no other."""
        return dialect.type_descriptor(Float() if dialect.name == "sqlite" else Numeric(20, 9))

    def process_bind_param(self, value: int | None, dialect: Dialect) -> Any:
        """The value for the driver."""
        if value is None:
            return None
        dollars = Decimal(value).scaleb(_NANODOLLARS)
        return float(dollars) if dialect.name == "sqlite" else dollars

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        """Whole nanodollars."""
        return None if value is None else round(Decimal(value).scaleb(-_NANODOLLARS))


_DOCUMENT: Final = JSON().with_variant(JSONB(), "postgresql")
_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")


def _usage() -> tuple[Column[Any], ...]:
    names = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    counts = ("model_calls", "tool_calls")
    return (*(Column(name, _NUMBER) for name in (*names, *counts)), Column("cost_usd", Dollars))


def _described() -> tuple[Column[Any], ...]:
    """The columns that end a row: what the user says of it, and its record."""
    return (
        Column("metadata", _DOCUMENT, nullable=False),
        Column("tags", _DOCUMENT, nullable=False),
        Column("record", Text, nullable=False),
    )


CONVERSATIONS: Final = Table(
    "conversations",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("title", Text),
    Column("folded", Text),
    Column("agent", Text),
    Column("agent_version", _NUMBER),
    Column("created_at", Moment),
    Column("updated_at", Moment),
    Column("entries", _NUMBER),
    Column("last_run_id", Text),
    Column("last_status", Text),
    Column("last_stop_reason", Text),
    Column("forked_from", Text),
    *_usage(),
    *_described(),
    Column("version", _NUMBER, nullable=False),
    Index("conversations_of_tenant", "tenant", "updated_at", "id"),
    Index("conversations_of_tenant_begun", "tenant", "created_at", "id"),
    Index("conversations_changed", "updated_at", "id"),
    Index("conversations_begun", "created_at", "id"),
)
"""``version`` counts how often it was written; ``folded`` is the title in small letters."""

RUNS: Final = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("conversation_id", Text, ForeignKey(CONVERSATIONS.c.id, ondelete="CASCADE"), nullable=False),
    Column("tenant", Text, nullable=False),
    Column("status", Text),
    Column("stop_reason", Text),
    Column("agent", Text),
    Column("agent_version", _NUMBER),
    Column("model", Text),
    Column("submitted_by", Text),
    Column("input_preview", Text),
    Column("error_class", Text),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("created_at", Moment),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    Column("parent_run_id", Text),
    Column("retried_from", Text),
    *_usage(),
    *_described(),
    Index("runs_of_conversation", "conversation_id"),
    Index("runs_of_tenant", "tenant", "created_at", "id", "status"),
    Index("runs_begun", "created_at", "id", "status"),
)
IS_UNFINISHED: Final = (
    RUNS.c.ended_at.is_(None),
    RUNS.c.status.in_([status.value for status in RunStatus if not status.terminal]),
)
"""The conditions for a run that had not ended when it was archived."""
Index(
    "runs_unfinished",
    RUNS.c.conversation_id,
    postgresql_where=RUNS.c.ended_at.is_(None),
    sqlite_where=RUNS.c.ended_at.is_(None),
)

ENTRIES: Final = Table(
    "entries",
    METADATA,
    Column("conversation_id", Text, ForeignKey(CONVERSATIONS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("position", _NUMBER, primary_key=True, autoincrement=False),
    Column("tenant", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("at", Moment),
    Column("run_id", Text),
    Column("seq", _NUMBER),
    Column("data", Text, nullable=False),
    Column("opaque", Text),
    Column("readable", Text),
    Column("bytes", _NUMBER, nullable=False),
    Column("exact", Text),
)

ACTS: Final = Table(
    "acts",
    METADATA,
    Column("tenant", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("at", Moment),
    Column("operation", Text),
    Column("key", Text),
    Column("key_id", Text),
    Column("operator", Boolean),
    Column("client", Text),
    Column("request", Text),
    Column("status", _NUMBER),
    Column("facts", _DOCUMENT, nullable=False),
    Index("acts_of_tenant", "tenant", "at"),
)

COUNTERS: Final = Table(
    "counters", METADATA, Column("name", Text, primary_key=True), Column("value", _NUMBER, nullable=False)
)

KEPT: Final = (ENTRIES, RUNS, CONVERSATIONS, ACTS)
"""The tables with what was said and done, in the order in which rows are deleted."""
