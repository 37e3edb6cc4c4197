"""The lengths of lists in many shards, in one call for each shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palaver.store.redis import keys
from palaver.store.scripting.contracts.listing import Length, Measure
from palaver.store.scripting.scripts import Scripts

ANY: Final = "00"
"""The shard in which lists are named that are asked for in others."""


async def list_lengths(
    scripts: Scripts, shards: Sequence[str], lists: Sequence[keys.Key], between: tuple[str, str] | None = None
) -> list[tuple[str, Sequence[Length]]]:
    """Return for each shard whose server answers how long these lists, which are named by their keys in ``ANY``, are
    there; with ``between``, of the members between these scores, as ZCOUNT takes them.

    Raises as `answered`.
    """
    names, (oldest, newest) = tuple(map(keys.within_shard, lists)), between or (None, None)
    measured = await scripts.run_for_each(
        shards, lambda shard: Measure(due=keys.due(shard), oldest=oldest, newest=newest, lists=names)
    )
    return [(shard, reply.lists) for shard, reply in measured]
