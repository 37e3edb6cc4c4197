"""The tenants whose steps wait for their turn, queue by queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from palaver.config.settings import Settings
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Pipeline, now_ms
from palaver.store.redis.visits import ask_each, whole
from palaver.store.steps.queues import ToolQueues
from palaver.vocabulary.ids import all_shards
from palaver.vocabulary.step_kinds import RANK

MOST_SHOWN: Final = 100
"""Tenants of a queue that are looked at, in each shard: those whose turns come first."""


class WaitingTenant(NamedTuple):
    """A tenant with steps that are ready and not delivered."""

    tag: str
    at_cap: bool
    """It waits for steps of its own to end, and not for its turn."""
    waiting: int
    """Steps."""
    in_flight: int
    """Its steps, of all queues, that are delivered or that a worker has."""
    first_for: float
    """Seconds for which the first of those that wait has waited."""


class WaitingTenants:
    """Reads which tenants wait for their turn."""

    def __init__(self, redis: Connection, settings: Settings, queues: ToolQueues) -> None:
        self._redis = redis
        self._queues = queues
        self._shards = all_shards(settings.shards)

    async def by_queue(self) -> dict[str, Sequence[WaitingTenant]]:
        """For each queue the tenants that wait, those whose turn comes first in front. Raises what Redis raises."""
        queues = await self._queues.all()
        places = [(queue, kind) for queue in queues for kind in (False, True)]

        def put(pipeline: Pipeline, shard: str) -> None:
            for queue, at_cap in places:
                pipeline.zrange((keys.capped if at_cap else keys.turns)(shard, queue), 0, MOST_SHOWN - 1)

        found = [
            (queue, shard, at_cap, owner.decode())
            for shard, of_places in whole(self._shards, await ask_each(self._redis, self._shards, put))
            for (queue, at_cap), owners in zip(places, of_places, strict=True)
            for owner in owners
        ]
        if not found:
            return {queue: [] for queue in queues}

        def put_tenant(pipeline: Pipeline, at: tuple[str, str, bool, str]) -> None:
            queue, shard, _, owner = at
            pipeline.zcard(keys.backlog(shard, queue, owner))
            pipeline.zrange(keys.backlog(shard, queue, owner), 0, 0, withscores=True)
            pipeline.zcard(keys.in_flight(shard, owner))

        replies = await ask_each(self._redis, found, put_tenant)
        now = await now_ms(self._redis)
        found_in: dict[str, dict[str, WaitingTenant]] = {queue: {} for queue in queues}
        for (queue, _, at_cap, owner), (waiting, first, in_flight) in replies:
            since = int(first[0][1]) % RANK if first else now
            one = WaitingTenant(owner.strip("@:"), at_cap, waiting, in_flight, max(0.0, (now - since) / 1000))
            known = found_in[queue].get(owner)
            found_in[queue][owner] = one if known is None else _sum(known, one)
        return {queue: [*tenants.values()] for queue, tenants in found_in.items()}


def _sum(one: WaitingTenant, other: WaitingTenant) -> WaitingTenant:
    """The same tenant in two shards."""
    return WaitingTenant(
        one.tag,
        one.at_cap and other.at_cap,
        one.waiting + other.waiting,
        one.in_flight + other.in_flight,
        max(one.first_for, other.first_for),
    )
