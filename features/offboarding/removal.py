"""The removal of what a tenant has, a slice at a time: a list of each kind of thing says what is left of it.

What was removed is counted in the script that does it, beside the place where it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from palaver.store.access.api_keys import changed
from palaver.store.redis import access_keys, agent_keys, keys
from palaver.store.redis.connection import Connection, portions
from palaver.store.redis.told_keys import all_told, told_to
from palaver.store.scripting.scripts import Scripts
from palaver.store.sides import Erasable, StoreSide, sides
from palaver.store.steps.queues import ToolQueues

from .belongings import kind_of_passing, shared
from .contract import EraseConversations, EraseKeys, EraseMembers, Over
from .erasure_keys import api_keys_erasure, audit_erasure, erasure
from .unfinished import AT_ONCE, of_runs

_KEYS_AT_ONCE: Final = 200
_SCRIPTS: Final = 10
"""Scripts that erase in a slice."""


class Removal:
    """Removes what tenants have."""

    def __init__(self, redis: Connection, scripts: Scripts, queues: ToolQueues, shards: Sequence[str]) -> None:
        self._redis = redis
        self._scripts = scripts
        self._queues = queues
        self._shards = shards

    async def revoke(self, tag: str) -> None:
        """Forget what opens the API for the tenant. The list of its keys stays until it does not grow any more."""
        ids = [member.decode() for member in await self._redis.zrange(access_keys.api_keys(tag), 0, -1)]
        if ids:
            await self._erase_keys(
                api_keys_erasure(tag), (Erasable(access_keys.api_key(id), "api_keys", 1) for id in ids)
            )
            # Behind that: a process that sees another version reads all keys again.
            await self._scripts.write_durably([changed()])

    async def erase_some(self, tag: str) -> bool:
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
        yield from self._of_features(tag, begins_runs=True)
        for shard in self._shards:
            for part in (self._erase_runs, self._erase_conversations):
                yield partial(part, shard, tag)
            for side in sides().values():
                yield partial(side.catch_up, self._redis, self._scripts, shard)
            yield partial(self._erase_passing, shard, tag)
            yield partial(self._erase_shared, shard, tag)
        yield from self._of_features(tag, begins_runs=False)
        for side in sides().values():
            yield partial(side.erase_elsewhere, tag)
        for told in all_told():
            yield partial(self._erase_told, told, tag)
        for last in (self._erase_agents, self._erase_api_keys, self._erase_acts):
            yield partial(last, tag)

    def _of_features(self, tag: str, *, begins_runs: bool) -> Iterator[Callable[[], Awaitable[bool]]]:
        for side in sides().values():
            if side.begins_runs == begins_runs:
                yield partial(self._erase_of_feature, side, tag)

    async def _erase_of_feature(self, side: StoreSide, tag: str) -> bool:
        some = await side.some_of(self._redis, tag)
        if some is None:
            return False
        await self._erase_keys(some.counts, some.erasable)
        pipeline = self._redis.pipeline(transaction=False)
        some.unlist(pipeline)
        await pipeline.execute()
        return True

    async def _erase_told(self, told: keys.Key, tag: str) -> bool:
        """Erase the events that a feature told the tenant of and that were not taken."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.delete(told_to(told, tag))
        pipeline.zrem(told, tag)
        return any(await pipeline.execute())

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
                    erasure=erasure(shard, tag),
                    expiring=keys.expiring(shard),
                    conversations=tuple(conversation_id.decode() for conversation_id in ids),
                )
            )
        return bool(ids)

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
            erasure(shard, tag),
            (Erasable(prefix + name, kind_of_passing(name), int(name not in uncounted)) for name in names),
        )
        pipeline.zrem(listed, *names)
        await pipeline.execute()
        return True

    async def _erase_shared(self, shard: str, tag: str) -> bool:
        """Look through a page of what has members of all tenants."""
        seen = await self._redis.hgetall(erasure(shard, tag))
        for each in shared(shard, await self._queues.all()):
            if seen.get(f"seen:{each.key}".encode()) != b"all":
                reply = await self._scripts.run(
                    EraseMembers(erasure=erasure(shard, tag), shared=each.key, shared_type=each.type, tag=tag)
                )
                return not isinstance(reply, Over)
        return False

    async def _erase_agents(self, tag: str) -> bool:
        names = list(await self._redis.hgetall(agent_keys.agents(tag)))[:_KEYS_AT_ONCE]
        removed = await self._redis.zrange(agent_keys.agents_passing(tag), 0, _KEYS_AT_ONCE - 1)
        prefix = agent_keys.agents_passing(tag).removesuffix("passing")
        await self._erase_keys(
            agent_keys.agents_erasure(tag),
            [
                *(Erasable(agent_keys.agent_versions(tag, name.decode()), "agents", 1) for name in names),
                *(Erasable(prefix + name.decode(), "", 0) for name in removed),
                Erasable(keys.promised(agent_keys.agents(tag)), "", 0),
            ],
        )
        pipeline = self._redis.pipeline(transaction=False)
        if names:
            pipeline.execute_command("HDEL", agent_keys.agents(tag), *names)
        if removed:
            pipeline.zrem(agent_keys.agents_passing(tag), *removed)
        if len(pipeline):
            await pipeline.execute()
        return bool(names or removed)

    async def _erase_api_keys(self, tag: str) -> bool:
        """Erase what is known of the use of keys that are revoked, and the list of them."""
        listed = access_keys.api_keys(tag)
        ids = [member.decode() for member in await self._redis.zrange(listed, 0, -1)]
        if ids:
            for some in portions(ids, _KEYS_AT_ONCE):
                uses = (Erasable(access_keys.api_key_used(key_id), "", 0) for key_id in some)
                await self._erase_keys(api_keys_erasure(tag), uses)
            # Last: it says what is left to do.
            await self._erase_keys(api_keys_erasure(tag), [Erasable(listed, "", 0)])
        return bool(ids)

    async def _erase_acts(self, tag: str) -> bool:
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.execute_command("XLEN", access_keys.audit(tag))
        (number,) = await pipeline.execute()
        if number:
            await self._erase_keys(audit_erasure(tag), [Erasable(access_keys.audit(tag), "acts", number)])
        return bool(number)

    async def _erase_keys(self, counts: keys.Key, erased_keys: Iterable[Erasable]) -> None:
        await self._scripts.run(EraseKeys(erasure=counts, erased_keys=tuple(erased_keys)))
