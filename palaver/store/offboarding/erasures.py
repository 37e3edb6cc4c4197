"""The erasure of tenants: all that one has goes, a slice at a time, and a receipt stays (ADR 0102).

What is left to do is seen from what is left, and what was done is counted in the script that does it. So whoever asks
again goes on where anybody stopped, and gets the same receipt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from palaver.config.settings import Settings
from palaver.errors import Refused
from palaver.schemas.erasures import ErasedCounts, Erasure
from palaver.store.access.api_keys import changed
from palaver.store.offboarding.belongings import LISTS_OF_RUNS, kind_of_passing, shared, steps_under_way
from palaver.store.offboarding.unfinished import AT_ONCE, UnfinishedRuns, of_runs
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, now_ms, portions
from palaver.store.redis.due import member
from palaver.store.redis.reach import EVERYTHING, within
from palaver.store.scripting.contracts import (
    BeginErasure,
    EndErasure,
    EraseConversations,
    EraseKeys,
    EraseMembers,
    WriteReceipt,
)
from palaver.store.scripting.contracts.erasure import Erasable, Erasing, Over
from palaver.store.scripting.scripts import Scripts
from palaver.store.statistics.statistics import Statistics
from palaver.store.steps.due import DueIndex
from palaver.store.steps.queues import ToolQueues
from palaver.store.tenants.tenants import NO_TENANT
from palaver.vocabulary.ids import all_shards

QUIET: Final = 3.0
"""Seconds from the mark until the first thing is erased: requests that were let in before are answered by then."""
_KEYS_AT_ONCE: Final = 200
_SCRIPTS: Final = 10
"""Scripts that erase in a slice."""
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

    def __init__(
        self,
        redis: Connection,
        scripts: Scripts,
        settings: Settings,
        due: DueIndex,
        queues: ToolQueues,
        statistics: Statistics,
    ) -> None:
        self._redis = redis
        self._statistics = statistics
        self._queues = queues
        self._scripts = scripts
        self._unfinished = UnfinishedRuns(redis, scripts, settings, due)
        self._shards = all_shards(settings.shards)
        self._retention = int(settings.audit_retention)

    async def erase(
        self, name: str, *, tag: str | None = None, by: str | None = None, client: str | None = None
    ) -> Erasure:
        """Erase a part of what a tenant has; from the first one on nothing is begun for it, and its keys open nothing.
        It is done when the answer says so. Whoever asks then gets the same receipt, for 30 days or until a new tenant
        has that name: with the ``tag`` nobody erases that one, too. ``by`` is who asks, ``client`` from where.

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
            await self._revoke(subject.tag)
            unfinished = await self._unfinished.end(subject.tag, subject.by)
            quiet = await now_ms(self._redis) - subject.began_at >= QUIET * 1000
            if unfinished or not quiet or not await self._erase_some(subject.tag):
                return await self._so_far(subject, unfinished)
            return await self._finish(subject)

    async def traces(self, tag: str) -> Sequence[keys.Key]:
        """Return the keys of a tenant's own that are there: none once it is erased, when what all share was looked
        through, too."""
        own = [
            *(keys.agents(tag), keys.agents_passing(tag), keys.api_keys(tag), keys.api_keys_erasure(tag)),
            *(keys.audit(tag), keys.audit_erasure(tag), keys.schedules(tag), keys.batches(tag), keys.webhooks(tag)),
        ]
        queues = await self._queues.all()
        for shard in self._shards:
            own += [f"{{p{shard}}}:{keys.owner(tag)}{name}" for name in (*LISTS_OF_RUNS, "convs", "convs:updated")]
            own += [keys.passing(shard, tag), keys.statistics(shard, keys.owner(tag)), keys.erasure(shard, tag)]
            own += [*steps_under_way(shard, tag, queues)]
        pipeline = self._redis.pipeline(transaction=False)
        for key in own:
            pipeline.execute_command("EXISTS", key)
        return [key for key, there in zip(own, await pipeline.execute(), strict=True) if there]

    async def _begin(self, name: str, tag: str | None, by: str | None, client: str | None) -> _Subject | None:
        """Mark the tenant in the registry. Return what is known of it; None if there is none."""
        state = orjson.dumps({"began_at": await now_ms(self._redis), "by": by, "client": client})
        begin = BeginErasure(tenants=keys.TENANTS, tenant=name, tag=tag, begun=state)
        reply = await self._scripts.run_durably(begin)
        if not isinstance(reply, Erasing):
            return None
        return _Subject(name, orjson.loads(reply.record)["tag"], **orjson.loads(reply.begun))

    async def _receipt(self, name: str, tag: str | None) -> Erasure:
        text = await self._redis.get(keys.receipt(name))
        receipt = None if text is None else Erasure.model_validate_json(text)
        if receipt is None or (tag is not None and tag != receipt.tag):
            raise Refused("tenant_not_found", NO_TENANT)
        return receipt

    async def _mark(self, tag: str) -> None:
        """Mark the tenant where scripts look that begin something. Repeated, as Redis may have lost its last second."""
        now = await now_ms(self._redis)
        pipeline = self._redis.pipeline(transaction=False)
        for shard in self._shards:
            pipeline.execute_command("ZADD", keys.erased(shard), "NX", now, tag)
        for erasure in _marks(tag):
            pipeline.hset(erasure, mapping={"since": now})
            pipeline.expire(erasure, _MARKED)
        await pipeline.execute()

    async def _revoke(self, tag: str) -> None:
        """Forget what opens the API for the tenant. The list of its keys stays until nobody adds to it any more."""
        ids = [member.decode() for member in await self._redis.zrange(keys.api_keys(tag), 0, -1)]
        if ids:
            await self._erase_keys(
                keys.api_keys_erasure(tag), (Erasable(keys.api_key(id), "api_keys", 1) for id in ids)
            )
            # Behind that: whoever sees another version reads all keys again.
            await self._scripts.write_durably([changed()])

    async def _erase_some(self, tag: str) -> bool:
        """Erase a part of what is left, once no run is. Tell whether nothing is left."""
        done = 0
        for erase in self._parts(tag):
            while await erase():
                done += 1
                if done == _SCRIPTS:
                    return False
        return True

    def _parts(self, tag: str) -> Iterator[Callable[[], Awaitable[bool]]]:
        """Yield what erases a part of each kind of thing, and tells whether there was one. Conversations go before what
        is made of requests about them: nothing of that is made without them."""
        # First: they begin runs.
        yield partial(self._erase_schedules, tag)
        yield partial(self._erase_batches, tag)
        for shard in self._shards:
            for part in (self._erase_runs, self._erase_conversations, self._erase_statistics, self._erase_passing):
                yield partial(part, shard, tag)
            yield partial(self._erase_shared, shard, tag)
        for last in (self._erase_webhooks, self._erase_agents, self._erase_api_keys, self._erase_acts):
            yield partial(last, tag)

    async def _erase_runs(self, shard: str, tag: str) -> bool:
        ids = await self._redis.zrange(keys.runs(shard, of=keys.owner(tag)), 0, AT_ONCE - 1)
        if ids:
            await self._scripts.run(of_runs(shard, tag, [run_id.decode() for run_id in ids]))
        return bool(ids)

    async def _erase_conversations(self, shard: str, tag: str) -> bool:
        ids = await self._redis.zrange(keys.conversations(shard, of=keys.owner(tag)), 0, AT_ONCE - 1)
        if ids:
            await self._scripts.run(
                EraseConversations(
                    erasure=keys.erasure(shard, tag),
                    expiring=keys.expiring(shard),
                    conversations=tuple(conversation_id.decode() for conversation_id in ids),
                )
            )
        return bool(ids)

    async def _erase_statistics(self, shard: str, tag: str) -> bool:
        """Erase what its runs were counted in, once no line of the journal is about one: there are no runs any more."""
        key = keys.statistics(shard, keys.owner(tag))
        more = await self._statistics.fold_some(shard)
        if not more and (more := bool(await self._redis.exists(key))):
            await self._erase_keys(keys.erasure(shard, tag), [Erasable(key, "", 0)])
        return more

    async def _erase_passing(self, shard: str, tag: str) -> bool:
        """Erase keys that are in no other list."""
        listed, prefix = keys.passing(shard, tag), f"{{p{shard}}}:"
        names = [member.decode() for member in await self._redis.zrange(listed, 0, _KEYS_AT_ONCE - 1)]
        if not names:
            return False
        records = [name for name in names if kind_of_passing(name) == "idempotency_keys"]
        pipeline = self._redis.pipeline(transaction=False)
        for name in records:
            pipeline.hget(prefix + name, "fingerprint")
        answers = await pipeline.execute() if records else []
        # Requests without a key of the client's have a record, too, for a minute: it counts as none.
        uncounted = {name for name, fingerprint in zip(records, answers, strict=True) if not fingerprint}
        await self._erase_keys(
            keys.erasure(shard, tag),
            (Erasable(prefix + name, kind_of_passing(name), int(name not in uncounted)) for name in names),
        )
        pipeline.zrem(listed, *names)
        await pipeline.execute()
        return True

    async def _erase_shared(self, shard: str, tag: str) -> bool:
        """Look through a page of what has members of all tenants."""
        seen = await self._redis.hgetall(keys.erasure(shard, tag))
        for each in shared(shard, await self._queues.all()):
            if seen.get(f"seen:{each.key}".encode()) != b"all":
                reply = await self._scripts.run(
                    EraseMembers(erasure=keys.erasure(shard, tag), shared=each.key, shared_type=each.type, tag=tag)
                )
                return not isinstance(reply, Over)
        return False

    async def _erase_schedules(self, tag: str) -> bool:
        names = [name.decode() for name in await self._redis.zrange(keys.schedules(tag), 0, _KEYS_AT_ONCE - 1)]
        if names:
            await self._erase_keys(
                keys.schedules_erasure(tag),
                [
                    *(Erasable(keys.schedule(tag, name), "schedules", 1) for name in names),
                    *(Erasable(keys.schedule_ticks(tag, name), "", 0) for name in names),
                    Erasable(keys.promised(keys.SCHEDULES_DUE), "", 0),
                ],
            )
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.zrem(keys.SCHEDULES_DUE, *(member(tag, name) for name in names))
            pipeline.zrem(keys.schedules(tag), *names)
            await pipeline.execute()
        return bool(names)

    async def _erase_webhooks(self, tag: str) -> bool:
        ids = [member.decode() for member in await self._redis.zrange(keys.webhooks(tag), 0, -1)]
        if ids:
            of = [keys.of_webhook(webhook_id) for webhook_id in ids]
            more = (key for each in of for key in (each.waiting, each.listed, each.ended, each.records))
            erased = [*(Erasable(each.hook, "webhooks", 1) for each in of), *(Erasable(key, "", 0) for key in more)]
            await self._erase_keys(keys.webhooks_erasure(tag), erased)
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.zrem(keys.WEBHOOKS_DUE, *ids)
            pipeline.hdel(keys.WEBHOOK_TENANTS, tag)
            # Last: it says what is left to do.
            pipeline.delete(keys.webhooks(tag))
            await pipeline.execute()
        return bool(ids)

    async def _erase_batches(self, tag: str) -> bool:
        ids = [each.decode() for each in await self._redis.zrange(keys.batches(tag), 0, _KEYS_AT_ONCE - 1)]
        if ids:
            own = [keys.of_batch(tag, batch_id) for batch_id in ids]
            await self._erase_keys(
                keys.batches_erasure(tag),
                [
                    *(Erasable(of.batch, "batches", 1) for of in own),
                    *(
                        Erasable(key, "", 0)
                        for of in own
                        for key in (of.items, of.cells, of.flight, of.again, of.failed)
                    ),
                    Erasable(keys.promised(keys.BATCHES_DUE), "", 0),
                ],
            )
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.zrem(keys.BATCHES_DUE, *(member(tag, batch_id) for batch_id in ids))
            pipeline.zrem(keys.batches(tag), *ids)
            await pipeline.execute()
        return bool(ids)

    async def _erase_agents(self, tag: str) -> bool:
        names = list(await self._redis.hgetall(keys.agents(tag)))[:_KEYS_AT_ONCE]
        removed = await self._redis.zrange(keys.agents_passing(tag), 0, _KEYS_AT_ONCE - 1)
        prefix = keys.agents_passing(tag).removesuffix("passing")
        await self._erase_keys(
            keys.agents_erasure(tag),
            [
                *(Erasable(keys.agent_versions(tag, name.decode()), "agents", 1) for name in names),
                *(Erasable(prefix + name.decode(), "", 0) for name in removed),
                Erasable(keys.promised(keys.agents(tag)), "", 0),
            ],
        )
        pipeline = self._redis.pipeline(transaction=False)
        if names:
            pipeline.execute_command("HDEL", keys.agents(tag), *names)
        if removed:
            pipeline.zrem(keys.agents_passing(tag), *removed)
        if len(pipeline):
            await pipeline.execute()
        return bool(names or removed)

    async def _erase_api_keys(self, tag: str) -> bool:
        """Erase what is known of the use of keys that are revoked, and the list of them."""
        listed = keys.api_keys(tag)
        ids = [member.decode() for member in await self._redis.zrange(listed, 0, -1)]
        if ids:
            for some in portions(ids, _KEYS_AT_ONCE):
                uses = (Erasable(keys.api_key_used(key_id), "", 0) for key_id in some)
                await self._erase_keys(keys.api_keys_erasure(tag), uses)
            # Last: it says what is left to do.
            await self._erase_keys(keys.api_keys_erasure(tag), [Erasable(listed, "", 0)])
        return bool(ids)

    async def _erase_acts(self, tag: str) -> bool:
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.execute_command("XLEN", keys.audit(tag))
        (number,) = await pipeline.execute()
        if number:
            await self._erase_keys(keys.audit_erasure(tag), [Erasable(keys.audit(tag), "acts", number)])
        return bool(number)

    async def _erase_keys(self, erasure: keys.Key, erased_keys: Any) -> None:
        await self._scripts.run(EraseKeys(erasure=erasure, erased_keys=tuple(erased_keys)))

    async def _so_far(self, subject: _Subject, unfinished: int) -> Erasure:
        return _told(subject, await self._counted(subject.tag), unfinished=unfinished)

    async def _counted(self, tag: str) -> Mapping[str, int]:
        """Add up what was erased in all places."""
        pipeline = self._redis.pipeline(transaction=False)
        for erasure in self._erasures(tag):
            pipeline.hgetall(erasure)
        total = Counter[str]()
        for counts in await pipeline.execute():
            for kind, number in counts.items():
                if kind.decode() in ErasedCounts.model_fields:
                    total[kind.decode()] += int(number)
        return total

    def _erasures(self, tag: str) -> Sequence[keys.Key]:
        others = (
            *_marks(tag),
            *(keys.api_keys_erasure(tag), keys.audit_erasure(tag)),
        )
        return [*(keys.erasure(shard, tag) for shard in self._shards), *others]

    async def _finish(self, subject: _Subject) -> Erasure:
        """Write the receipt, once; then forget what it was made of, and at last the tenant."""
        ended_at = await now_ms(self._redis)
        told = _told(subject, await self._counted(subject.tag), ended_at=ended_at)
        written = await self._scripts.run_durably(
            WriteReceipt(
                receipt=keys.receipt(subject.name),
                acts=keys.audit(""),
                tag=subject.tag,
                text=told.model_dump_json(),
                act=_act(subject, told) if self._retention else None,
                retention=self._retention,
            )
        )
        queues = await self._queues.all()
        pipeline = self._redis.pipeline(transaction=False)
        for shard in self._shards:
            # A worker that delivers may have written it again.
            pipeline.hdel(keys.caps(shard), keys.owner(subject.tag) + keys.WEBHOOKS_MARK)
            # Before the counts go: whoever erases yet, more slowly, does not begin them anew.
            pipeline.zadd(keys.erased(shard), {subject.tag: 0})
            pipeline.delete(keys.erasure(shard, subject.tag), *steps_under_way(shard, subject.tag, queues))
        pipeline.delete(keys.api_keys_erasure(subject.tag))
        pipeline.delete(keys.audit_erasure(subject.tag))
        await pipeline.execute()
        end = EndErasure(tenants=keys.TENANTS, tenant=subject.name, tag=subject.tag)
        await self._scripts.run_durably(end)
        return Erasure.model_validate_json(written.text)


def _marks(tag: str) -> Sequence[keys.Key]:
    """The counts of what was erased of all that has a name: while one is there, nothing is put beside it."""
    return (
        keys.agents_erasure(tag),
        keys.schedules_erasure(tag),
        keys.batches_erasure(tag),
        keys.webhooks_erasure(tag),
    )


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
