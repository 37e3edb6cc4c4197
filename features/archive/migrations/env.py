"""The environment of Alembic: it runs the migrations in the transaction of `schema.migrate`."""

from __future__ import annotations

from alembic import context

attributes = context.config.attributes
connection = attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=attributes["metadata"],
    version_table_schema=attributes["schema"] if connection.dialect.name == "postgresql" else None,
)
with context.begin_transaction():
    context.run_migrations()
