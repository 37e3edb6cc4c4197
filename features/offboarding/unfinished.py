"""The unfinished runs of a tenant that is being erased: cancelled, and waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palaver.errors import CorruptRecord
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.store.runs.runs import to_cancel
from palaver.store.scripting.scripts import Scripts
from palaver.store.steps.due import DueIndex
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.lifecycle import RunStatus

from .belongings import LISTS_OF_RUNS, UNFINISHED, run_lists
from .contract import EraseRuns
from .erasure_keys import erasure

AT_ONCE: Final = 50
"""Runs or conversations of one script: 2 ms of Redis."""
_REASON: Final = "the tenant is being erased"


class UnfinishedRuns:
    """Ends runs."""

    def __init__(self, redis: Connection, scripts: Scripts, due: DueIndex, shards: Sequence[str]) -> None:
        self._redis = redis
        self._scripts = scripts
        self._due = due
        self._shards = shards

    async def end(self, tag: str, by: str | None) -> int:
        """Cancel runs that have not ended, and look after those whose workers may be dead. Return the number of runs
        that have not ended yet."""
        for shard in self._shards:
            for status in UNFINISHED:
                listed = keys.runs(shard, status, keys.owner(tag))
                ids = [member.decode() for member in await self._redis.zrange(listed, 0, AT_ONCE - 1)]
                if ids and status is RunStatus.CANCELLING:
                    await self._sweep(ids)
                elif ids:
                    await self._cancel(shard, ids, tag, by)
        pipeline = self._redis.pipeline(transaction=False)
        for shard in self._shards:
            for status in UNFINISHED:
                pipeline.zcard(keys.runs(shard, status, keys.owner(tag)))
        return sum(await pipeline.execute())

    async def _cancel(self, shard: str, run_ids: Sequence[str], tag: str, by: str | None) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for run_id in run_ids:
            pipeline.hget(keys.run(run_id), "conversation")
        known = list(zip(run_ids, await pipeline.execute(), strict=True))
        # The next run of a conversation is cancelled as this one is, so nothing is followed up.
        there = [(run_id, conversation.decode()) for run_id, conversation in known if conversation is not None]
        replies = await self._scripts.run_each(
            to_cancel(run_id, conversation, mode="now", reason=_REASON, by=by, acked_ms=0)
            for run_id, conversation in there
        )
        # Evicted, or not as they were written: they cannot be ended.
        lost = [run_id for run_id, conversation in known if conversation is None]
        for (run_id, _), reply in zip(there, replies, strict=True):
            if isinstance(reply, CorruptRecord):
                lost.append(run_id)
            elif isinstance(reply, Exception):
                raise reply
        if lost:
            await self._scripts.run(of_runs(shard, tag, lost, broken=True))

    async def _sweep(self, run_ids: Sequence[str]) -> None:
        """Act on leases that are over: where no worker is left, no other process does."""
        pipeline = self._redis.pipeline(transaction=False)
        for run_id in run_ids:
            pipeline.hgetall(keys.steps(run_id))
        steps = zip(run_ids, await pipeline.execute(), strict=True)
        await self._due.sweep([DueItem(run_id, name.decode()) for run_id, open_steps in steps for name in open_steps])


def of_runs(shard: str, tag: str, run_ids: Sequence[str], *, broken: bool = False) -> EraseRuns:
    """Return the script that erases these runs."""
    owned, shared_lists, counts = LISTS_OF_RUNS, run_lists(shard), erasure(shard, tag)
    return EraseRuns(erasure=counts, broken=broken, runs=tuple(run_ids), owned=owned, shared=shared_lists)
