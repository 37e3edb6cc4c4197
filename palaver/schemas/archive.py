"""The archive on the wire: whether its database answers, how far it is behind, and how much it has."""

from __future__ import annotations

from datetime import datetime

from palaver.schemas.fields import DataModel


class ArchiveState(DataModel):
    """The archive, as this process sees it."""

    away: str | None
    """Why its database does not answer; null: it does. Runs go on without it, and what has ended stays in Redis."""
    waiting: int
    """Conversations that it lacks something of, or is to forget."""
    oldest_seconds: float
    """The time for which the one of them has waited that waits longest."""
    conversations: int | None
    """Conversations that it has; of many it is an estimate. Null, as are the others, before it has answered once."""
    runs: int | None
    entries: int | None
    """Entries of logs: messages, calls, and what else happened."""
    bytes: int | None
    """Bytes of its tables, with their indexes."""
    last_error: str | None
    """Why it did not answer when that happened last; null: that did not happen since this process began."""
    last_error_at: datetime | None
