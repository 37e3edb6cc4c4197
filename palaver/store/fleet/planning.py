"""Planned work, that of schedules and batches: the rules it is admitted by, and the workers that carry it out."""

from __future__ import annotations

import random
from typing import Final

from palaver.feature import features
from palaver.store.fleet.fleet import Fleet
from palaver.store.redis import fleet_keys
from palaver.store.redis.connection import Connection
from palaver.vocabulary.step_kinds import MODEL

_WOKEN: Final = 2
"""Workers that are told of new work: one of them may be gone."""


class Planning:
    """The planned work of an installation, as API processes and workers see it."""

    def __init__(self, redis: Connection, fleet: Fleet) -> None:
        self._redis = redis
        self._fleet = fleet

    async def keep_rules(self, rules: bytes, *, again: bool = False) -> None:
        """Keep the rules that runs of planned work are admitted by, in the place of those before; ``again`` only if
        there are none."""
        await self._redis.set(fleet_keys.PLANNING_RULES, rules, nx=again)

    async def rules(self) -> bytes | None:
        """Return the rules; None if no API has said any yet."""
        return await self._redis.get(fleet_keys.PLANNING_RULES)

    async def anything(self) -> bool:
        """Tell whether any work is planned, due or not."""
        pipeline = self._redis.pipeline(transaction=False)
        for feature in features().values():
            if feature.due:
                pipeline.execute_command("EXISTS", feature.due)
        return len(pipeline) > 0 and any(await pipeline.execute())

    async def wake(self) -> None:
        """Let workers look for planned work now. A message may be lost: they look every ten seconds, too."""
        planners = await self._planners()
        pipeline = self._redis.pipeline(transaction=False)
        for worker_id in random.sample(planners, min(_WOKEN, len(planners))):
            pipeline.execute_command("PUBLISH", fleet_keys.cancel_channel(worker_id), fleet_keys.PLANNED)
        if planners:
            await pipeline.execute()

    async def _planners(self) -> list[str]:
        return [worker_id for worker_id, queues in await self._fleet.taking() if MODEL.queue in queues]
