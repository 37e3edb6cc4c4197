"""Schedules in erasures and exports of tenants, and the metrics of ticks."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, Final, get_args

from palaver.errors import UnknownSchedule
from palaver.schemas.schedules import TickOutcome
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.store.redis.due import member
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts import EraseKeys
from palaver.store.scripting.contracts.erasure import Erasable
from palaver.store.scripting.scripts import Scripts
from palaver.store.sides import Part, Placed, StoreSide
from palaver.telemetry.exposition import Samples, Values

from . import schedule_keys
from .schedules import Schedules

_ERASED_AT_ONCE: Final = 200
_PAGE: Final = 50
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Schedules(StoreSide):
    begins_runs = True
    section = 6

    def marks(self, tag: str) -> Sequence[Key]:
        return (schedule_keys.schedules_erasure(tag),)

    def traces(self, tag: str) -> Sequence[Key]:
        return (schedule_keys.schedules(tag),)

    async def erase_some(self, redis: Connection, scripts: Scripts, tag: str) -> bool:
        listed = await redis.zrange(schedule_keys.schedules(tag), 0, _ERASED_AT_ONCE - 1)
        if not listed:
            return False
        names = [name.decode() for name in listed]
        erased = (
            *(Erasable(schedule_keys.schedule(tag, name), "schedules", 1) for name in names),
            *(Erasable(schedule_keys.schedule_ticks(tag, name), "", 0) for name in names),
            Erasable(keys.promised(schedule_keys.SCHEDULES_DUE), "", 0),
        )
        await scripts.run(EraseKeys(erasure=schedule_keys.schedules_erasure(tag), erased_keys=erased))
        pipeline = redis.pipeline(transaction=False)
        pipeline.zrem(schedule_keys.SCHEDULES_DUE, *(member(tag, name) for name in names))
        # Last: it says what is left to do.
        pipeline.zrem(schedule_keys.schedules(tag), *names)
        await pipeline.execute()
        return True

    def check_place(self, place: str) -> None:
        if not _NAME.fullmatch(place):
            raise ValueError(place)

    async def export(self, part: Part[Any], tag: str, place: str) -> AsyncGenerator[Placed, None]:
        schedules: Schedules = part(Schedules)
        more = True
        while more:
            page = await schedules.list(tag, after=place, limit=_PAGE)
            for listed in page.schedules:
                with suppress(UnknownSchedule):
                    schedule, _ = await schedules.get(tag, listed.name)
                    yield listed.name, {"kind": "schedule", "schedule": schedule.model_dump(mode="json")}
            place, more = page.last, page.more

    async def samples(self, redis: Connection) -> Samples:
        counts = await redis.hgetall(schedule_keys.SCHEDULES_COUNTS)
        ticks: Values = {(outcome,): int(counts.get(outcome.encode(), 0)) for outcome in get_args(TickOutcome)}
        return {"palaver_schedule_ticks_total": ticks}


STORE_SIDE: Final = _Schedules()
