"""Keys of the archive.

{p00}:unarchived   zset    conversations that have something which the archive lacks, and what it is to forget, by when
                           a worker is to look at it next                                        no TTL
{p00}:forgotten    zset    deleted conversations and runs that it has forgotten, by when that was: what was read before
                           does not come back                                                    TTL 10 minutes
"""

from __future__ import annotations


def unarchived(shard: str) -> str:
    """The ids of a shard that the archive lacks, or is to forget."""
    return f"{{p{shard}}}:unarchived"


def forgotten(shard: str) -> str:
    """The ids of a shard that the archive has forgotten just now."""
    return f"{{p{shard}}}:forgotten"
