"""The archive in erasures of tenants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from palaver.store.redis.keys import Key
from palaver.store.sides import Part, StoreSide
from palaver.telemetry.exposition import Samples

from . import archive_keys
from .backlog import Backlog
from .database import Database
from .terms import archive_url

_AT_ONCE: Final = 2_000
"""Rows that are erased in one transaction."""


class _Archive(StoreSide):
    def shared_in(self, shard: str) -> Sequence[Key]:
        return (archive_keys.unarchived(shard), archive_keys.forgotten(shard))

    async def erase_elsewhere(self, tag: str) -> bool:
        """Erase rows of a tenant. What a worker has read before is not written any more."""
        url = archive_url()
        if url is None:
            return False
        database = Database.of(url)
        try:
            return any((await database.forget_tenant(tag, _AT_ONCE)).values())
        finally:
            await database.close()

    async def samples(self, part: Part[Any]) -> Samples:
        backlog: Backlog = part(Backlog)
        return {
            "palaver_archive_waiting": {(): await backlog.size()},
            "palaver_archive_oldest_seconds": {(): await backlog.oldest()},
        }


STORE_SIDE: Final = _Archive()
