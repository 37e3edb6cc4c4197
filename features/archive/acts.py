"""Acts with keys, as `palaver.store.access.audit` keeps them: each is archived once, in the order of its tenant's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from palaver.store.redis import access_keys
from palaver.store.redis.connection import portions
from palaver.store.sides import Ground
from palaver.store.tenants.tenants import Tenants, is_erased

AT_ONCE: Final = 500
"""Acts that are read at once, at most."""
_FIELD: Final = b"act"


class Acts:
    """The acts that the store has."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._tenants = Tenants(ground.redis, ground.scripts)

    async def newest(self) -> Mapping[str, str]:
        """Return the id of the last act of each tenant that has one, by its tag."""
        found = dict[str, str]()
        for tags in portions([tenant.tag or "" for tenant in await self._tenants.list()]):
            pipeline = self._redis.pipeline(transaction=False)
            for tag in tags:
                pipeline.execute_command("XREVRANGE", access_keys.audit(tag), "+", "-", "COUNT", 1)
            for tag, last in zip(tags, await pipeline.execute(), strict=True):
                for entry_id, _ in last:
                    found[tag] = entry_id.decode()
        return found

    async def behind(self, tag: str, last: str | None) -> Mapping[str, str]:
        """Return the next acts of a tenant behind the one of an id, each as JSON by its id; none of one that is being
        erased."""
        if await is_erased(self._redis, tag):
            return {}
        found = await self._redis.xrange(access_keys.audit(tag), f"({last}" if last else "-", "+", AT_ONCE)
        return {entry_id.decode(): fields[_FIELD].decode() for entry_id, fields in found}
