"""The tools of workers: each distinct set of declarations is stored once, however many workers have it.

Two versions of a worker, as while a deployment rolls, have two sets. A set stays known for an hour after the last
worker that had it was seen, so that a restart of all of them is no loss of the tools. Each key is read and written by
itself: they may be on any slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from palaver.store.fleet.fleet import KNOWN_FOR
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.tools.declared import ToolDeclaration, ToolSet, declarations_in
from palaver.vocabulary.limits import count_exceeded, limit_of


class Tools:
    """The sets of tools that workers declare."""

    def __init__(self, redis: Connection) -> None:
        self._redis = redis

    async def publish(self, tools: ToolSet) -> None:
        """Say that a worker has these tools, with each of its heartbeats."""
        name = keys.tool_set(tools.digest)
        seconds, _ = await self._redis.time()
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.expire(name, KNOWN_FOR)
        pipeline.zadd(keys.TOOL_SETS, {tools.digest: seconds})
        pipeline.zremrangebyscore(keys.TOOL_SETS, "-inf", seconds - KNOWN_FOR)
        known, *_ = await pipeline.execute()
        if not known:
            pipeline.set(name, tools.text, ex=KNOWN_FOR)
            await pipeline.execute()

    async def declared(self) -> Mapping[str, list[ToolDeclaration]]:
        """Return the declarations of each set by its digest, the sets that were seen last first."""
        members = await self._redis.zrange(keys.TOOL_SETS, -limit_of("tool_sets") - 1, -1)
        digests = [digest.decode() for digest in reversed(members)]
        if len(digests) > limit_of("tool_sets"):
            count_exceeded("tool_sets")
            digests.pop()
        pipeline = self._redis.pipeline(transaction=False)
        for digest in digests:
            pipeline.get(keys.tool_set(digest))
        texts = await pipeline.execute()
        sets: dict[str, list[ToolDeclaration]] = {}
        for digest, text in zip(digests, texts, strict=True):
            if text is not None:
                await asyncio.sleep(0)  # a full set takes some milliseconds of the loop
                sets[digest] = declarations_in(text)
        return sets
