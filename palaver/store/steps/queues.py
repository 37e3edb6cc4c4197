"""The queues that tools have of their own (ADR 0030): those that a worker's tools name, or that a worker takes from.

They are remembered without workers, too: an autoscaler at zero has to be told that something waits there. What a step
is in was named by the worker that made it, within the longest life of a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from palaver.errors import ConfigurationError
from palaver.store.redis import fleet_keys
from palaver.store.redis.connection import Connection
from palaver.store.redis.visits import is_away
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.step_kinds import QUEUES, is_own_queue, own_queues

_REMEMBERED: Final = limit_of("tools_remembered")
_UNUSED: Final = limit_of("no_worker")
"""Seconds after which what waits in a queue without workers has failed."""
_MOST: Final = limit_of("tool_queues")


class ToolQueues:
    """The queues of an installation, besides those of step kinds."""

    def __init__(self, redis: Connection) -> None:
        self._redis = redis
        self._own: tuple[str, ...] | None = None

    async def own(self) -> tuple[str, ...]:
        """Return the names of all of them; as they were read last while the server that has them is away. Raises what
        Redis raises."""
        if self._own is not None and is_away(self._redis, fleet_keys.WORKER_QUEUES):
            return self._own
        names = [member.decode() for member in await self._redis.zrange(fleet_keys.WORKER_QUEUES, 0, _MOST - 1)]
        self._own = tuple(sorted(name for name in names if is_own_queue(name)))
        return self._own

    async def all(self) -> tuple[str, ...]:
        """Return every queue, those of step kinds first. Raises what Redis raises."""
        return (*QUEUES, *await self.own())

    async def publish(self, queues: Iterable[str]) -> None:
        """Say that a worker's tools name these queues, or that it takes from them, with each of its heartbeats.

        Raises:
            ConfigurationError: they are too many, beside those that others have.
        """
        named = own_queues(queues)
        if not named:
            return
        seconds, _ = await self._redis.time()
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.zremrangebyscore(fleet_keys.WORKER_QUEUES, "-inf", seconds - _REMEMBERED)
        pipeline.zrange(fleet_keys.WORKER_QUEUES, 0, -1, withscores=True)
        _, known = await pipeline.execute()
        seen = {name.decode(): at for name, at in known}
        over = len(seen.keys() | {*named}) - _MOST
        if over > 0:
            # Nothing waits there any more.
            unused = [name for name, at in seen.items() if at < seconds - _UNUSED and name not in named][:over]
            if len(unused) < over:
                count_exceeded("tool_queues")
                raise ConfigurationError(
                    f"@tool(queue=…): {', '.join(sorted({*named} - seen.keys()))} would be one queue too many: there "
                    f"may be {_MOST}, and others have {', '.join(sorted(seen))}"
                )
            pipeline.zrem(fleet_keys.WORKER_QUEUES, *unused)
        pipeline.zadd(fleet_keys.WORKER_QUEUES, dict.fromkeys(named, seconds))
        await pipeline.execute()
