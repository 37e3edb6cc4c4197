"""The erasure of a tenant, as it is shown."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from palaver.schemas.fields import DataModel


class ErasedCounts(DataModel):
    """The numbers of things that were erased of a tenant. Each feature of the server adds what it has, by its kind."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int] = Field(init=False)

    conversations: int = 0
    runs: int = 0
    actions: int = 0
    """Decisions and outputs that runs waited for."""
    secrets: int = 0
    agents: int = 0
    """Agents on the server, each with all of its versions."""
    api_keys: int = 0
    """Keys that were revoked by it, or had expired and were listed still."""
    idempotency_keys: int = 0
    usage_days: int = 0
    """Ledgers: one for each day and shard."""
    acts: int = 0
    """Entries of its audit."""


class Erasure(DataModel):
    """The erasure of a tenant: its receipt, once it is done."""

    tenant: str
    """Its name, which others may have from the end on."""
    tag: str
    """The tag in its ids; no tenant ever gets it again."""
    done: bool
    """False: there is more. Ask again."""
    began_at: datetime
    ended_at: datetime | None
    by: str | None
    """The name of the key that asked for it first, or who typed the command."""
    erased: ErasedCounts
    unfinished_runs: int
    """Runs that workers have not let go of yet."""
