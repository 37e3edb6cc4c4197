"""Keys of statistics: they stand where the runs are, in each shard.

{p00}:journal      stream   what happened to runs and steps and is in no tally yet; empty is as good as gone   no TTL
{p00}:<owner>statistics hash  tallies of what happened of late: for each span of a window one, JSON
                            TTL: eight days after the last
"""

from __future__ import annotations

from palaver.store.redis.keys import DEFAULT_TENANT, Key, Owner


def journal(shard: str) -> Key:
    """The journal of what happened to runs and steps, until it is in the tallies."""
    return f"{{p{shard}}}:journal"


def statistics(shard: str, of: Owner = DEFAULT_TENANT) -> Key:
    """The tallies of what happened of late to runs and steps of an owner."""
    return f"{{p{shard}}}:{of}statistics"
