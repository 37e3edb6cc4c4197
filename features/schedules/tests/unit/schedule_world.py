"""Schedules in fast-forward: schedulers that die between any two commands of Redis."""

from __future__ import annotations

import random
from typing import Any

from features.schedules import schedule_keys
from features.schedules.scheduler import Scheduler
from palaver.operations import Backend
from palaver.store import Store
from tests.unit.api_world import World
from tests.unit.mortal_redis import Killed, MortalRedis


class Schedulers:
    """Processes that carry ticks out, a new one for each that has died."""

    def __init__(self, api: World, chance: float, seed: int) -> None:
        self._api = api
        self._chance = chance
        self._dice = random.Random(seed)
        self.deaths = 0

    def process(self) -> Scheduler:
        """A process that may die."""
        backend: Backend = self._api.app.state.backend
        redis = self._api.server.client(MortalRedis)
        redis.chance, redis.dice = self._chance, self._dice
        changed = {name: getattr(backend, name) for name in backend.__dataclass_fields__ if not name.startswith("_")}
        return Scheduler(Backend(**{**changed, "store": Store(redis, backend.settings)}))

    async def look(self, scheduler: Scheduler) -> Scheduler:
        """Let one look once, and return it, or another one in its place."""
        try:
            await scheduler.look()
        except Killed:
            self.deaths += 1
            return self.process()
        return scheduler


async def next_attention(api: World) -> float | None:
    """The Unix time at which a schedule next needs attention."""
    redis: Any = api.redis
    found = await redis.zrange(schedule_keys.SCHEDULES_DUE, 0, 0, withscores=True)
    return found[0][1] / 1000 if found else None
