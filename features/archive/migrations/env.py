"""The environment of Alembic: it runs the migrations in the transaction of `schema.migrate`."""

from __future__ import annotations

from alembic import context

from features.archive.tables import METADATA, SCHEMA

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=METADATA,
    version_table_schema=SCHEMA if connection.dialect.name == "postgresql" else None,
)
with context.begin_transaction():
    context.run_migrations()
