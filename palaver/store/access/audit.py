"""Acts with keys of the store: a stream for each tenant, to which is only added.

It is bounded by number and by age, and goes with its last entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from palaver.config.settings import Settings
from palaver.schemas.audit import AuditEntry
from palaver.store.redis import access_keys
from palaver.store.redis.connection import Connection
from palaver.store.scripting.scripts import Scripts
from palaver.store.tenants.tenants import is_erased
from palaver.vocabulary.limits import count_exceeded, limit_of

_MOST: Final = limit_of("audit_entries")
_LONGEST: Final = limit_of("audit_facts")
_FIELD: Final = b"act"


class AuditLog:
    """The acts of all tenants."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings) -> None:
        self._redis = redis
        self._scripts = scripts
        self._retention = int(settings.audit_retention)

    async def add(
        self,
        tenant: str,
        operation: str,
        *,
        key: str | None = None,
        key_id: str | None = None,
        operator: bool = False,
        client: str | None = None,
        request: str | None = None,
        status: int | None = None,
        facts: Mapping[str, Any],
    ) -> None:
        """Add an act, unless none are kept, or the tenant is erased. Raises NotDurable: it may be lost again."""
        if not self._retention or await is_erased(self._redis, tenant):
            return
        if len(orjson.dumps(facts)) > _LONGEST:
            count_exceeded("audit_facts")
            facts = {name: value for name, value in facts.items() if isinstance(value, str) and len(value) <= 100}
        act = {
            "operation": operation, "key": key, "key_id": key_id, "operator": operator, "client": client,
            "request": request, "status": status, "facts": facts,
        }  # fmt: skip
        name = access_keys.audit(tenant)
        seconds, _ = await self._redis.time()
        await self._scripts.write_durably(
            [
                ("XADD", name, "MAXLEN", "~", _MOST, "*", _FIELD, orjson.dumps(act)),
                ("XTRIM", name, "MINID", "~", (int(seconds) - self._retention) * 1000),
                ("EXPIRE", name, self._retention),
            ]
        )

    async def read(
        self, tenant: str, *, after: str = "", since: datetime | None = None, limit: int
    ) -> list[AuditEntry]:
        """Return acts of a tenant, the oldest first: behind the one of the id ``after``, and not before ``since``."""
        seconds, _ = await self._redis.time()
        oldest = (int(seconds) - self._retention) * 1000 if self._retention else 0
        begin = max(oldest, 0 if since is None else int(since.timestamp() * 1000))
        start = f"({after}" if after and int(after.partition("-")[0]) >= begin else str(begin)
        entries = await self._redis.xrange(access_keys.audit(tenant), start, "+", limit)
        return [_entry(entry_id.decode(), fields[_FIELD]) for entry_id, fields in entries]


def _entry(entry_id: str, text: bytes) -> AuditEntry:
    at = datetime.fromtimestamp(int(entry_id.partition("-")[0]) / 1000, UTC)
    return AuditEntry(id=entry_id, at=at, **orjson.loads(text))
