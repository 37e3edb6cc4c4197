"""The erasure of tenants: all that one has goes, a slice at a time, and a receipt stays (ADR 0094).

What is left to do is seen from what is left, and what was done is counted in the script that does it. So each request
again goes on where anybody stopped, and gets the same receipt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import orjson

from palaver.errors import Refused
from palaver.schemas.erasures import ErasedCounts, Erasure
from palaver.store.redis import access_keys, agent_keys, keys
from palaver.store.redis.connection import now_ms
from palaver.store.redis.reach import EVERYTHING, within
from palaver.store.redis.told_keys import all_told, told_to
from palaver.store.sides import Ground, sides
from palaver.store.steps.due import DueIndex
from palaver.store.steps.queues import ToolQueues
from palaver.store.tenants.tenants import NO_TENANT
from palaver.vocabulary.ids import all_shards

from .belongings import LISTS_OF_RUNS, counted_kinds, steps_under_way
from .contract import BeginErasure, EndErasure, Erasing, WriteReceipt
from .erasure_keys import api_keys_erasure, audit_erasure, erasure, receipt
from .removal import Removal
from .unfinished import UnfinishedRuns

QUIET: Final = 3.0
"""Seconds from the mark until the first thing is erased: requests that were let in before are answered by then."""
_MARKED: Final = 86_400
"""Seconds for which nothing is put among what a tenant owns by name, while it is erased."""


class _Subject(NamedTuple):
    """The tenant that is being erased."""

    name: str
    tag: str
    began_at: int
    """ms."""
    by: str | None
    client: str | None


class Erasures:
    """Erases tenants."""

    def __init__(self, ground: Ground) -> None:
        self._redis, self._scripts = ground.redis, ground.scripts
        self._queues = ToolQueues(self._redis)
        self._shards = all_shards(ground.settings.shards)
        due = DueIndex(self._redis, self._scripts, ground.rounds, self._queues)
        self._unfinished = UnfinishedRuns(self._redis, self._scripts, due, self._shards)
        self._removal = Removal(self._redis, self._scripts, self._queues, self._shards)
        self._retention = int(ground.settings.audit_retention)

    async def erase(
        self, name: str, *, tag: str | None = None, by: str | None = None, client: str | None = None
    ) -> Erasure:
        """Erase a part of what a tenant has; from the first one on nothing is begun for it, and its keys open nothing.
        It is done when the answer says so. A request then gets the same receipt, for 30 days or until a new tenant
        has that name: with the ``tag`` that one is not erased, too. ``by`` is who asks, ``client`` from where.

        Raises:
            Refused: ``tenant_not_found``; ``default_tenant``, which stays.
            NotDurable: it may have to be done again.
        """
        if name == "default":
            raise Refused("default_tenant", "It is that of who runs the installation.")
        with within(EVERYTHING):
            subject = await self._begin(name, tag, by, client)
            if subject is None:
                return await self._receipt(name, tag)
            await self._mark(subject.tag)
            await self._removal.revoke(subject.tag)
            unfinished = await self._unfinished.end(subject.tag, subject.by)
            quiet = await now_ms(self._redis) - subject.began_at >= QUIET * 1000
            if unfinished or not quiet or not await self._removal.erase_some(subject.tag):
                return await self._so_far(subject, unfinished)
            return await self._finish(subject)

    async def traces(self, tag: str) -> Sequence[keys.Key]:
        """Return the keys of a tenant's own that are there: none once it is erased, when what all share was looked
        through, too."""
        own = [
            agent_keys.agents(tag),
            agent_keys.agents_passing(tag),
            access_keys.api_keys(tag),
            api_keys_erasure(tag),
            access_keys.audit(tag),
            audit_erasure(tag),
            *(key for side in sides().values() for key in side.traces(tag)),
            *(told_to(told, tag) for told in all_told()),
        ]
        queues = await self._queues.all()
        for shard in self._shards:
            own += [f"{{p{shard}}}:{keys.owner(tag)}{name}" for name in (*LISTS_OF_RUNS, "convs", "convs:updated")]
            own += [keys.passing(shard, tag), erasure(shard, tag)]
            own += [*steps_under_way(shard, tag, queues)]
        pipeline = self._redis.pipeline(transaction=False)
        for key in own:
            pipeline.execute_command("EXISTS", key)
        return [key for key, there in zip(own, await pipeline.execute(), strict=True) if there]

    async def _begin(self, name: str, tag: str | None, by: str | None, client: str | None) -> _Subject | None:
        """Mark the tenant in the registry. Return what is known of it; None if there is none."""
        state = orjson.dumps({"began_at": await now_ms(self._redis), "by": by, "client": client})
        begin = BeginErasure(tenants=access_keys.TENANTS, tenant=name, tag=tag, begun=state)
        reply = await self._scripts.run_durably(begin)
        if not isinstance(reply, Erasing):
            return None
        return _Subject(name, orjson.loads(reply.record)["tag"], **orjson.loads(reply.begun))

    async def _receipt(self, name: str, tag: str | None) -> Erasure:
        text = await self._redis.get(receipt(name))
        told = None if text is None else Erasure.model_validate_json(text)
        if told is None or (tag is not None and tag != told.tag):
            raise Refused("tenant_not_found", NO_TENANT)
        return told

    async def _mark(self, tag: str) -> None:
        """Mark the tenant where scripts look that begin something. Repeated, as Redis may have lost its last second."""
        now = await now_ms(self._redis)
        pipeline = self._redis.pipeline(transaction=False)
        for shard in self._shards:
            pipeline.execute_command("ZADD", keys.erased(shard), "NX", now, tag)
        for mark in _marks(tag):
            pipeline.hset(mark, mapping={"since": now})
            pipeline.expire(mark, _MARKED)
        await pipeline.execute()

    async def _so_far(self, subject: _Subject, unfinished: int) -> Erasure:
        return _told(subject, await self._counted(subject.tag), unfinished=unfinished)

    async def _counted(self, tag: str) -> Mapping[str, int]:
        """Add up what was erased in all places."""
        pipeline = self._redis.pipeline(transaction=False)
        for counts in self._erasures(tag):
            pipeline.hgetall(counts)
        total = dict.fromkeys(counted_kinds(), 0)
        for counted in await pipeline.execute():
            for kind, number in counted.items():
                if (name := kind.decode()) in total:
                    total[name] += int(number)
        return total

    def _erasures(self, tag: str) -> Sequence[keys.Key]:
        return [*(erasure(shard, tag) for shard in self._shards), *_marks(tag), *_counts_of_keys(tag)]

    async def _finish(self, subject: _Subject) -> Erasure:
        """Write the receipt, once; then forget what it was made of, and at last the tenant."""
        ended_at = await now_ms(self._redis)
        told = _told(subject, await self._counted(subject.tag), ended_at=ended_at)
        written = await self._scripts.run_durably(
            WriteReceipt(
                receipt=receipt(subject.name),
                acts=access_keys.audit(""),
                tag=subject.tag,
                text=told.model_dump_json(),
                act=_act(subject, told) if self._retention else None,
                retention=self._retention,
            )
        )
        queues = await self._queues.all()
        pipeline = self._redis.pipeline(transaction=False)
        for shard in self._shards:
            for side in sides().values():
                side.sweep(pipeline, shard, subject.tag)
            # Before the counts go: a slower process that still erases does not begin them anew.
            pipeline.zadd(keys.erased(shard), {subject.tag: 0})
            pipeline.delete(erasure(shard, subject.tag), *steps_under_way(shard, subject.tag, queues))
        for counts in _counts_of_keys(subject.tag):
            pipeline.delete(counts)
        await pipeline.execute()
        end = EndErasure(tenants=access_keys.TENANTS, tenant=subject.name, tag=subject.tag)
        await self._scripts.run_durably(end)
        return Erasure.model_validate_json(written.text)


def _marks(tag: str) -> Sequence[keys.Key]:
    """The counts of what was erased of all that has a name: while one is there, nothing is put beside it."""
    return (agent_keys.agents_erasure(tag), *(key for side in sides().values() for key in side.marks(tag)))


def _counts_of_keys(tag: str) -> Sequence[keys.Key]:
    """The counts of what was erased of its keys of the API, and of its acts."""
    return (api_keys_erasure(tag), audit_erasure(tag))


def _told(subject: _Subject, counts: Mapping[str, int], *, unfinished: int = 0, ended_at: int | None = None) -> Erasure:
    return Erasure(
        tenant=subject.name,
        tag=subject.tag,
        done=ended_at is not None,
        began_at=datetime.fromtimestamp(subject.began_at / 1000, UTC),
        ended_at=None if ended_at is None else datetime.fromtimestamp(ended_at / 1000, UTC),
        by=subject.by or subject.client,
        erased=ErasedCounts(**counts),
        unfinished_runs=unfinished,
    )


def _act(subject: _Subject, told: Erasure) -> bytes:
    """Return the act of an erasure, as `palaver.store.access.audit` stores acts."""
    facts = {"tenant": told.tenant, "tag": told.tag, "began_at": told.began_at, **told.erased.model_dump()}
    return orjson.dumps(
        {
            "operation": "tenant_erased", "key": subject.by, "key_id": None, "operator": True,
            "client": subject.client, "request": None, "status": None, "facts": facts,
        }
    )  # fmt: skip
