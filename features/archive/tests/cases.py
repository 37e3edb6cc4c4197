"""The cases of the archive in tests of the core."""

from __future__ import annotations

from typing import Any, Final

from features.archive import archive_keys
from palaver.store import Store
from palaver.store.redis import keys
from palaver.vocabulary.ids import is_id, new_conversation_id

SHARD_KINDS: Final = frozenset({"unarchived", "forgotten"})
_UNARCHIVED: Final = archive_keys.unarchived("00")
_FORGOTTEN: Final = archive_keys.forgotten("00")


def check_shard(shard: Any) -> None:
    """What is to be archived is there, and what is to be forgotten is not."""
    for any_id in shard.of_features.get("unarchived", ()):
        deleted, known = any_id.removeprefix("-"), any_id[0] != "-"
        there = shard.conversations if is_id("conv", deleted) else shard.runs
        assert (deleted in there) == known, f"{any_id} is to be {'archived' if known else 'forgotten'}"


async def endow(store: Store, tag: str, words: str) -> None:
    """A conversation that is to be archived, and one that was deleted."""
    redis = store.part(lambda ground: ground.redis)
    (conversation_id, *_) = await redis.zrange(keys.conversations("00", "", keys.owner(tag)), 0, 0)
    pipeline = redis.pipeline(transaction=False)
    pipeline.zadd(_UNARCHIVED, {conversation_id.decode(): 0})
    pipeline.zadd(_FORGOTTEN, {new_conversation_id(1, "00", tag): 1})
    await pipeline.execute()
