"""The schema of the archive: made, and brought to its newest revision, by Alembic."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, select, text

from palaver.errors import ConfigurationError

from .connections import Connections
from .tables import COUNTERS, METADATA, SCHEMA

_SCRIPTS: Final = Path(__file__).parent / "migrations"
OLDEST: Final = "oldest"
"""The counter with the oldest revision whose code can use the schema: each migration sets it."""
_MIGRATING: Final = 3600
"""Seconds that a migration may take: it may have to go through all rows."""
_LOCK: Final = 0x70616C61766572
"""The number of the lock that one process at a time has: ``palaver``."""


async def migrate(connections: Connections) -> None:
    """Bring the schema to the newest revision. Of several processes one does it, and the others find it done. A newer
    one that this code can use is left as it is.

    Raises:
        ConfigurationError: the schema is too new for this code, or the database cannot have it.
    """
    async with connections.writing(within=_MIGRATING) as connection:
        await connection.run_sync(_migrate)


def newest() -> str:
    """Return the newest revision that this code knows."""
    found = ScriptDirectory(str(_SCRIPTS)).get_current_head()
    assert found is not None
    return found


def _migrate(connection: Connection, to: str = "head") -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        if connection.execute(text("SHOW server_encoding")).scalar_one() != "UTF8":
            raise ConfigurationError("the database of the archive has to have the encoding UTF8")
        # IF NOT EXISTS wants the right to make one even where there is one.
        if not connection.execute(text("SELECT to_regnamespace(:name)"), {"name": SCHEMA}).scalar():
            connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
    found = _revision(connection)
    known = {each.revision for each in ScriptDirectory(str(_SCRIPTS)).walk_revisions()}
    if found is not None and found not in known:
        if connection.execute(select(COUNTERS.c.value).where(COUNTERS.c.name == OLDEST)).scalar_one() <= int(newest()):
            return
        raise ConfigurationError(
            f"the archive has the schema {found}, which is newer than this version of Palaver: use the newer one"
        )
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes.update(connection=connection, metadata=METADATA, schema=SCHEMA)
    command.upgrade(config, to)


def _revision(connection: Connection) -> str | None:
    schema = SCHEMA if connection.dialect.name == "postgresql" else None
    return MigrationContext.configure(connection, opts={"version_table_schema": schema}).get_current_revision()
