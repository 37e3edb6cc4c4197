"""Ticks of schedules: found when they are due, claimed by one process, and settled (ADR 0118)."""

from __future__ import annotations

import logging
from secrets import token_hex
from typing import Final

import orjson

from palaver.errors import UNREADABLE, CorruptRecord
from palaver.late import dataclass
from palaver.schemas.schedules import ScheduleTick, Timing
from palaver.store.redis.connection import now_ms
from palaver.store.redis.due import member, read_due
from palaver.store.sides import Ground

from . import schedule_keys
from .contract import ClaimedTick, ClaimTick, NextTick, SettleTick, TickSettled
from .schedules import ScheduleOrder

log = logging.getLogger("palaver.store.schedules")

LEASE: Final = 30.0
"""Seconds for which no other process carries out a tick that was claimed: more than all that a submit may take."""
_AT_ONCE: Final = 100
_BROKEN: Final = 600
"""Seconds for which a schedule is left alone that cannot be carried out."""


@dataclass(frozen=True, slots=True)
class DueTick:
    """A schedule that needs attention."""

    tenant: str
    name: str
    version: int
    timing: Timing
    next: int | None
    """The next tick, ms; None if there is none, but one that was claimed."""


@dataclass(frozen=True, slots=True)
class TickClaim:
    """A tick that this process carries out."""

    tenant: str
    name: str
    claim: str
    tick: int
    """ms."""
    order: ScheduleOrder
    timing: Timing
    last: str | None
    """The run of the tick before."""
    missed_since: int | None
    claimed_at: int
    """The time at which it was claimed first, ms."""
    updated_by: str | None
    """The name of the key that last put or resumed the schedule."""


class Ticks:
    """The ticks of all schedules."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._scripts = ground.scripts

    async def now(self) -> int:
        """The time, ms."""
        return await now_ms(self._redis)

    async def due(self) -> tuple[list[DueTick], float | None]:
        """Return schedules that need attention, and the seconds until the next one will; None if none will. One that
        cannot be read is left alone for a while: it holds up no other."""
        places, upcoming = await read_due(self._redis, schedule_keys.SCHEDULES_DUE, _AT_ONCE)
        pipeline = self._redis.pipeline(transaction=False)
        for tenant, name in places:
            pipeline.hmget(schedule_keys.schedule(tenant, name), ["version", "timing", "next"])
        found: list[DueTick] = []
        for (tenant, name), row in zip(places, await pipeline.execute() if places else (), strict=True):
            try:
                found.append(_due(tenant, name, *row))
            except UNREADABLE:
                log.error("a schedule cannot be read: %s", member(tenant, name))
                await self.defer(tenant, name)
        return found, upcoming

    async def claim(self, due: DueTick, tick: int, missed_since: int | None, following: NextTick) -> TickClaim | None:
        """Claim ``tick``, behind which the schedule goes on with ``following``; or the one that another process has
        claimed and not settled in time. None if there is nothing to do."""
        claim = token_hex(8)
        reply = await self._scripts.run(
            ClaimTick(
                schedule=schedule_keys.schedule(due.tenant, due.name),
                due=schedule_keys.SCHEDULES_DUE,
                member=member(due.tenant, due.name),
                claim=claim,
                lease=LEASE,
                version=due.version,
                before=due.next or 0,
                tick=tick,
                missed_since=missed_since,
                next=following,
            )
        )
        if not isinstance(reply, ClaimedTick):
            return None
        try:
            order, timing = ScheduleOrder.of_json(_bytes(reply.order)), Timing.model_validate_json(reply.timing)
            by = orjson.loads(reply.updated)["by"]
        except UNREADABLE as error:
            raise CorruptRecord(f"the schedule {due.name}") from error
        return TickClaim(
            due.tenant, due.name, claim, reply.tick, order, timing, reply.last, reply.missed_since, reply.claimed_at, by
        )

    async def settle(self, claimed: TickClaim, entry: ScheduleTick) -> bool:
        """Write what became of a tick. False: another process has it by now."""
        submitted = entry.run_id if entry.outcome == "started" else None
        return await self._settle(claimed, None, entry.outcome, submitted, entry.model_dump_json())

    async def wait(self, claimed: TickClaim, seconds: float) -> bool:
        """Have the tick looked at again after so many seconds. False: another process has it by now."""
        return await self._settle(claimed, seconds, "", None, "")

    async def _settle(self, claimed: TickClaim, wait: float | None, outcome: str, run: str | None, entry: str) -> bool:
        reply = await self._scripts.run(
            SettleTick(
                schedule=schedule_keys.schedule(claimed.tenant, claimed.name),
                ticks=schedule_keys.schedule_ticks(claimed.tenant, claimed.name),
                due=schedule_keys.SCHEDULES_DUE,
                counts=schedule_keys.SCHEDULES_COUNTS,
                member=member(claimed.tenant, claimed.name),
                claim=claimed.claim,
                wait=wait,
                outcome=outcome,
                run=run,
                entry=entry,
            )
        )
        return isinstance(reply, TickSettled)

    async def defer(self, tenant: str, name: str) -> None:
        """Leave a schedule alone for a while with which something is wrong that is unforeseen."""
        at = await now_ms(self._redis) + _BROKEN * 1000
        command = "ZADD", schedule_keys.SCHEDULES_DUE, "XX", at, member(tenant, name)
        await self._scripts.write_durably([command])


def _due(tenant: str, name: str, version: bytes | None, timing: bytes | None, following: bytes | None) -> DueTick:
    known = Timing() if timing is None else Timing.model_validate_json(timing)
    return DueTick(tenant, name, int(version or 0), known, None if following is None else int(following))


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
