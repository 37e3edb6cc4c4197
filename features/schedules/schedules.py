"""Schedules that a tenant keeps: put, paused, read and removed by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from palaver.errors import UNREADABLE, CorruptRecord
from palaver.late import dataclass
from palaver.schemas.bearers import Bearer
from palaver.schemas.schedules import ListedSchedule, Schedule, ScheduledRun, ScheduleTick, Timing
from palaver.store.reading import records
from palaver.store.redis.connection import now_ms
from palaver.store.redis.due import member
from palaver.store.scripting.contracts.agents import Absent
from palaver.store.scripting.moving import durable_reply
from palaver.store.scripting.versions import Versioned
from palaver.store.sides import Ground
from palaver.vocabulary.limits import limit_of

from . import schedule_keys
from .contract import KeepSchedule, NextTick, PauseSchedule, RemoveSchedule
from .problems import UnknownSchedule

NO_TICK: Final = NextTick(None, None)
_SCHEDULE: Final = Versioned("schedule", "schedules", "version", "schedule_changed", "schedules_full")
_LISTED: Final = ("version", "timing", "paused", "next", "tick", "last", "created", "updated")


@dataclass(frozen=True, slots=True)
class ScheduleOrder:
    """A run, and in whose name it is submitted."""

    run: ScheduledRun
    bearer: Bearer

    def to_json(self) -> bytes:
        """The text that is stored: the same for the same order."""
        run = orjson.loads(self.run.model_dump_json(exclude_defaults=True))
        return orjson.dumps({"run": run, "bearer": self.bearer.fields()}, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def of_json(cls, text: bytes) -> ScheduleOrder:
        """The order that a text says."""
        fields = orjson.loads(text)
        run = ScheduledRun.model_validate_json(orjson.dumps(fields["run"]))
        return cls(run, Bearer.of_fields(fields["bearer"]))


@dataclass(frozen=True, slots=True)
class ListedSchedules:
    """Schedules by name."""

    schedules: Sequence[ListedSchedule]
    last: str
    """The name up to which the page goes."""
    more: bool
    """There are schedules behind that."""


class Schedules:
    """The schedules of tenants, each of which is named by its tag."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._scripts = ground.scripts
        self._capacity = ground.capacity

    async def now(self) -> int:
        """The time, ms."""
        return await now_ms(self._redis)

    async def counts(self) -> Mapping[str, int]:
        """Return the numbers of ticks that are over, by what became of them."""
        counts = await self._redis.hgetall(schedule_keys.SCHEDULES_COUNTS)
        return {outcome.decode(): int(number) for outcome, number in counts.items()}

    async def keep(
        self,
        tenant: str,
        name: str,
        order: ScheduleOrder,
        timing: Timing,
        following: NextTick,
        *,
        expected: int | None = None,
    ) -> tuple[int, bool]:
        """Make a schedule, or change it, and say which version it has and whether there was none before. ``expected``
        is as for ``Agents.keep``; ``following`` is the next tick by its timing.

        Raises:
            StateConflict: ``schedule_changed``, it has another version; ``schedules_full``; ``tenant_erased``.
            NoRoom: ``store_nearly_full``.
            NotDurable: kept, but not as safely as PALAVER_DURABILITY asks.
        """
        await self._capacity.admit()
        keep = KeepSchedule(
            schedule=schedule_keys.schedule(tenant, name),
            names=schedule_keys.schedules(tenant),
            due=schedule_keys.SCHEDULES_DUE,
            erasure=schedule_keys.schedules_erasure(tenant),
            schedule_name=name,
            member=member(tenant, name),
            expected=expected,
            order=order.to_json(),
            timing=timing.model_dump_json(),
            made=await self._made(order.bearer.name),
            next=following,
        )
        kept = await durable_reply(self._scripts.run_durably(keep), _SCHEDULE.kept)
        return kept.version, kept.new

    async def pause(self, tenant: str, name: str, *, by: str | None) -> None:
        """Let a schedule have no ticks until it is resumed.

        Raises:
            UnknownSchedule: there is none of that name.
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks.
        """
        await self._set_paused(tenant, name, by, NO_TICK, paused=True)

    async def resume(self, tenant: str, name: str, following: NextTick, *, by: str | None) -> None:
        """Let a schedule go on, with the tick ``following``. Raises as `pause`."""
        await self._set_paused(tenant, name, by, following, paused=False)

    async def _set_paused(self, tenant: str, name: str, by: str | None, following: NextTick, *, paused: bool) -> None:
        pause = PauseSchedule(
            schedule=schedule_keys.schedule(tenant, name),
            due=schedule_keys.SCHEDULES_DUE,
            member=member(tenant, name),
            paused=paused,
            made=await self._made(by),
            next=following,
        )
        if isinstance(await self._scripts.run_durably(pause), Absent):
            raise UnknownSchedule(name)

    async def remove(self, tenant: str, name: str, *, expected: int | None = None) -> None:
        """Forget a schedule. Its runs go on.

        Raises:
            UnknownSchedule: there is none of that name.
            StateConflict: ``schedule_changed``, it has another version than ``expected``.
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks.
        """
        remove = RemoveSchedule(
            schedule=schedule_keys.schedule(tenant, name),
            ticks=schedule_keys.schedule_ticks(tenant, name),
            names=schedule_keys.schedules(tenant),
            due=schedule_keys.SCHEDULES_DUE,
            schedule_name=name,
            member=member(tenant, name),
            expected=expected,
        )
        await durable_reply(
            self._scripts.run_durably(remove), lambda reply: _SCHEDULE.removed(reply, UnknownSchedule(name))
        )

    async def get(self, tenant: str, name: str) -> tuple[Schedule, ScheduleOrder]:
        """A schedule, without its ``next_times``, and its order. Raises UnknownSchedule."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.hmget(schedule_keys.schedule(tenant, name), [*_LISTED, "order"])
        most = limit_of("schedule_ticks")
        pipeline.execute_command("XREVRANGE", schedule_keys.schedule_ticks(tenant, name), "+", "-", "COUNT", most)
        (*listed, text), ticks = await pipeline.execute()
        if text is None:
            raise UnknownSchedule(name)
        try:
            order = ScheduleOrder.of_json(text)
            schedule = Schedule(
                **_listed(name, listed),
                run=order.run,
                next_times=(),
                ticks=tuple(ScheduleTick.model_validate_json(entry[1][b"tick"]) for entry in ticks),
            )
        except UNREADABLE as error:
            raise CorruptRecord(f"the schedule {name}") from error
        return schedule, order

    async def list(self, tenant: str, *, after: str = "", limit: int) -> ListedSchedules:
        """The schedules behind the name ``after``."""
        pipeline = self._redis.pipeline(transaction=False)
        begin = f"({after}" if after else "-"
        pipeline.zrange(schedule_keys.schedules(tenant), begin, "+", bylex=True, offset=0, num=limit + 1)
        (members,) = await pipeline.execute()
        names = [each.decode() for each in members]
        page = names[:limit]
        for name in page:
            pipeline.hmget(schedule_keys.schedule(tenant, name), _LISTED)
        rows = zip(page, await pipeline.execute() if page else (), strict=True)
        # One without a version was removed meanwhile.
        listed = [ListedSchedule(**_listed(name, values)) for name, values in rows if values[0] is not None]
        return ListedSchedules(listed, page[-1] if page else after, len(names) > limit)

    async def _made(self, by: str | None) -> bytes:
        return orjson.dumps({"at": await self.now(), "by": by})


def _listed(name: str, values: Sequence[bytes | None]) -> Mapping[str, Any]:
    version, timing, paused, following, tick, last, created, updated = values
    first, newest = orjson.loads(created or b""), orjson.loads(updated or b"")
    return {
        "name": name,
        "version": int(version or 0),
        **orjson.loads(timing or b""),
        "paused": paused is not None,
        "next_at": records.moment(following),
        "waiting_since": records.moment(tick),
        "last_run_id": None if last is None else last.decode(),
        "created_at": records.instant(first["at"]),
        "created_by": first["by"],
        "updated_at": records.instant(newest["at"]),
        "updated_by": newest["by"],
    }
