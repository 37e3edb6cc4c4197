"""Keys of traces: they stand where the runs are, in each shard.

{p00}:trace:<id>   stream   for its trace: what happens to a run that is sampled   gone when it ends
{p00}:spans        stream   for traces: attempts and runs that are over and were not sent yet  TTL: retention
{p00}:sender       string   the worker that sends them   TTL: five seconds
"""

from __future__ import annotations

from palaver.store.redis.keys import Key


def spans(shard: str) -> Key:
    """The spans of traces that are still to be sent."""
    return f"{{p{shard}}}:spans"


def sender(shard: str) -> Key:
    """The worker that sends those spans."""
    return f"{{p{shard}}}:sender"
