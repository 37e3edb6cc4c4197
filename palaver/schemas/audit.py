"""Acts with keys, as they are kept and shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from palaver.schemas.fields import DataModel


class AuditEntry(DataModel):
    """An act: who did what, to which run or conversation, when, from where."""

    id: str
    """Its place: those of a tenant grow."""
    at: datetime
    """By Redis's clock."""
    operation: str
    """As in the OpenAPI document."""
    key: str | None
    """The name of the key, or ``key/subject``; null for what was done beside the store."""
    key_id: str | None
    """The id of the key; null for a token of a key that the store does not have."""
    operator: bool
    """True if the key sees all tenants."""
    client: str | None
    """The address that it came from, or who typed the command."""
    request: str | None
    """The id of the request."""
    status: int | None
    """The status of the answer; null where the store did not answer, and there may have been an effect."""
    facts: dict[str, Any]
    """The things that it was done to, by the names in the path, and kinds and counts: never content."""


class AuditPage(DataModel):
    """Acts of a tenant, the oldest first."""

    data: list[AuditEntry]
    next_after: str
    """The place to go on behind."""
    has_more: bool
