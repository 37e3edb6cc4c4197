"""Connections to the archive's database: a few, each wait bounded.

PostgreSQL is spoken to by psycopg, which is given the URL as it is: several hosts, certificates and sockets are written
as libpq has them. SQLite is a file with a write-ahead log, which its owner alone may read.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import sqlalchemy.event
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from palaver.errors import ConfigurationError

from .faults import takes_no_writes, told
from .tables import SCHEMA

CONNECT: Final = 5
"""Seconds in which a connection has to be there."""
STATEMENT: Final = 30
"""Seconds that a statement may take."""
LOCK: Final = 10
"""Seconds that one waits for what another transaction holds."""
WHOLE: Final = 60
"""Seconds that a transaction may take, whatever the network does; to give a statement up there takes ten more."""
_CONNECTIONS: Final = {"pool_size": 2, "max_overflow": 2, "pool_timeout": 10, "pool_recycle": 1800}
_WRITES: Final = "palaver_writes"
# Acknowledged is on disk: what Redis lets go then is nowhere else. A stronger setting of the server stays.
_BOUNDS: Final = text(
    "SELECT set_config('statement_timeout', :statement, true), set_config('lock_timeout', :lock, true),"
    " set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'"
    " ELSE current_setting('synchronous_commit') END, true)"
)


class Connections:
    """The connections to one database, of one event loop. ``where`` is its name for messages, without a password."""

    def __init__(self, engine: AsyncEngine, where: str) -> None:
        self._engine = engine
        self.where = where

    @property
    def is_postgresql(self) -> bool:
        """True if it is no SQLite."""
        return self._engine.dialect.name == "postgresql"

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that sees one state of the database, in the time of one statement. Raises as `writing`."""
        options = {"isolation_level": "REPEATABLE READ"} if self.is_postgresql else {}
        async with self._transaction(options, CONNECT + STATEMENT, STATEMENT) as connection:
            yield connection

    @asynccontextmanager
    async def writing(self, *, within: float | None = None) -> AsyncIterator[AsyncConnection]:
        """A transaction of at most so many seconds (`WHOLE`); committed at the end, on disk.

        Raises:
            ArchiveAway: the database is not there, or did nothing in time.
            ArchiveRefused: it does not take this.
            ConfigurationError: it does not have the tables of this version, or not the rights.
        """
        statement = STATEMENT if within is None else within
        async with self._transaction({_WRITES: True}, within or WHOLE, statement) as connection:
            yield connection

    async def close(self) -> None:
        """Close all."""
        await self._engine.dispose()

    @asynccontextmanager
    async def _transaction(
        self, options: Mapping[str, Any], within: float, statement: float
    ) -> AsyncIterator[AsyncConnection]:
        try:
            async with asyncio.timeout(within), self._engine.connect() as connection:
                await connection.execution_options(**options)
                async with connection.begin():
                    if self.is_postgresql:
                        await connection.execute(
                            _BOUNDS, {"statement": f"{statement * 1000:.0f}", "lock": f"{LOCK * 1000:.0f}"}
                        )
                    yield connection
        except Exception as error:
            meant = told(error)
            if meant is None:
                raise
            if takes_no_writes(meant):
                await self._engine.dispose()
            raise meant from None


def connections_of(url: str) -> Connections:
    """Return the connections to the database of a URL; none is made yet. Raises ConfigurationError for one that is
    wrong, without a word of it."""
    scheme, _, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        return _postgresql(url)
    if scheme == "sqlite":
        return _sqlite(rest)
    raise ConfigurationError(
        "the URL of an archive has to be postgresql://USER:PASSWORD@HOST/DATABASE or sqlite:////PATH/TO/FILE"
    )


def _postgresql(url: str) -> Connections:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    defaults: dict[str, Any] = {
        "connect_timeout": CONNECT,
        "application_name": "palaver",
        "keepalives_idle": STATEMENT,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": STATEMENT * 1000,
    }
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise ConfigurationError("the URL of the archive is no address that PostgreSQL's libpq can read") from None
    info = make_conninfo("", **{**defaults, **given, "client_encoding": "utf8"})

    async def connect() -> Any:
        # No prepared statements: a pooler in between would lose them.
        return await psycopg.AsyncConnection.connect(info, prepare_threshold=None)

    engine = create_async_engine(
        "postgresql+psycopg://", async_creator=connect, pool_pre_ping=True, hide_parameters=True, **_CONNECTIONS
    )
    return Connections(engine, f"{given.get('dbname', '')} at {given.get('host', 'this machine')}")


def _sqlite(rest: str) -> Connections:
    if not rest.startswith("/") or not rest[1:] or "?" in rest or rest[1:] == ":memory:":
        raise ConfigurationError(
            "the URL of an archive in SQLite has to name a file, as sqlite:////PATH/TO/FILE, and nothing else"
        )
    path = rest[1:]
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}",
        hide_parameters=True,
        execution_options={"schema_translate_map": {SCHEMA: None}},
        connect_args={"timeout": LOCK},
        **_CONNECTIONS,
    )
    sqlalchemy.event.listen(engine.sync_engine, "do_connect", _owner_alone(path))
    sqlalchemy.event.listen(engine.sync_engine, "connect", _opened)
    sqlalchemy.event.listen(engine.sync_engine, "begin", _begun)
    return Connections(engine, path)


def _owner_alone(path: str) -> Callable[..., None]:
    """Return what makes the file before SQLite does, which would let others read it."""

    def make(*_: Any) -> None:
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))

    return make


def _opened(connection: Any, _: Any) -> None:
    # The driver would begin transactions by itself, and only some.
    connection.isolation_level = None
    try:
        cursor = connection.cursor()
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()
    except BaseException:
        # A connection that nothing knows yet, whose thread would go on.
        connection.close()
        raise


def _begun(connection: Connection) -> None:
    # One that reads first and then writes would be refused if another has written in between.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITES) else "BEGIN")
