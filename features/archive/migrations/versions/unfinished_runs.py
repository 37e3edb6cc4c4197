"""Runs that had not ended when they were archived."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make an index of them: there are few."""
    schema = "palaver" if op.get_bind().dialect.name == "postgresql" else None
    lacks = sa.text("ended_at IS NULL")
    op.create_index(
        "runs_unfinished", "runs", ["conversation_id"], schema=schema, postgresql_where=lacks, sqlite_where=lacks
    )
