"""Keys of events that features tell of, in the script that makes them true (`_tell.lua`). Each has its own hash tag.

{palaver:<feature>}:events zset    tenants that were told of, by since when that is to be taken  TTL: retention
{palaver:<feature>}:events:<tag> stream  what a tenant is to hear and are not taken yet              TTL: retention
"""

from __future__ import annotations

from palaver.feature import features
from palaver.store.redis.keys import Key


def all_told() -> list[Key]:
    """The lists of tenants that features told of events."""
    return [feature.told for feature in features().values() if feature.told]


def told_to(told: Key, tag: str) -> str:
    """The events that a tenant is to hear, of one of these lists."""
    return f"{told}:{tag}"
