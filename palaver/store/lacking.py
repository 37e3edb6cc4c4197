"""What steps wait for because no worker that took them has it: a tool, a provider, or its key.

Each shard has an index of them, sorted by what is lacked, which the scripts keep. So what is lacked can be counted
without reading who lacks it.
"""

from __future__ import annotations

from dataclasses import dataclass

from palaver.ids import all_shards
from palaver.limits import beyond, most
from palaver.settings import Settings
from palaver.store import keys
from palaver.store.connection import Connection


@dataclass(frozen=True, slots=True)
class Lacked:
    """Something that steps wait for."""

    code: str
    """As in ``waiting`` of their runs."""
    steps: int
    run_id: str
    """One of their runs."""


class LackingIndex:
    """The lacking index of every shard."""

    def __init__(self, redis: Connection, settings: Settings) -> None:
        self._redis = redis
        self._shards = all_shards(settings.shards)

    async def read(self) -> list[Lacked]:
        """All that is lacked, by code; no more than the limit says."""
        found: dict[str, Lacked] = {}
        after = dict.fromkeys(self._shards, "-")
        while after and len(found) <= most("lacks"):
            firsts = await self._first(after)
            after = {}
            for shard, first, count in firsts:
                code, _, member = first.partition(" ")
                before = found.get(code)
                found[code] = Lacked(code, count + (before.steps if before else 0), member.partition("/")[0])
                after[shard] = f"[{code}!"
        if len(found) > most("lacks"):
            beyond("lacks")
        return sorted(found.values(), key=lambda each: each.code)[: most("lacks")]

    async def _first(self, after: dict[str, str]) -> list[tuple[str, str, int]]:
        """Of each shard that has one the first entry behind a place, and how many lack the same."""
        pipeline = self._redis.pipeline(transaction=False)
        for shard, place in after.items():
            pipeline.zrange(keys.lacking(shard), place, "+", bylex=True, offset=0, num=1)
        firsts = {
            shard: members[0].decode()
            for shard, members in zip(after, await pipeline.execute(), strict=True)
            if members
        }
        for shard, first in firsts.items():
            code = first.partition(" ")[0]
            # "!" is what comes behind " ", which ends a code.
            pipeline.zlexcount(keys.lacking(shard), f"[{code} ", f"({code}!")
        counts = await pipeline.execute() if firsts else []
        return [(shard, first, count) for (shard, first), count in zip(firsts.items(), counts, strict=True)]
