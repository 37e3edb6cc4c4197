"""Statistics in erasures of tenants. An export leaves them out: they follow from runs and usage, which are in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.store.redis.keys import Key
from palaver.store.scripting.scripts import Scripts
from palaver.store.sides import StoreSide

from . import statistics_keys
from .statistics import fold_some


class _Statistics(StoreSide):
    def traces_in(self, shard: str, tag: str) -> Sequence[Key]:
        return (statistics_keys.statistics(shard, keys.owner(tag)),)

    async def catch_up(self, redis: Connection, scripts: Scripts, shard: str) -> bool:
        return await fold_some(redis, scripts, shard)


STORE_SIDE: Final = _Statistics()
