"""Schedules in erasures and exports of tenants, and the metrics of ticks."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, Final, get_args

from palaver.schemas.schedules import TickOutcome
from palaver.store.redis.keys import Key
from palaver.store.sides import ListedSide, Part, Placed
from palaver.telemetry.exposition import Samples, Values

from . import schedule_keys
from .problems import UnknownSchedule
from .schedules import Schedules

_PAGE: Final = 50


class _Schedules(ListedSide):
    section = 6
    begins_runs = True
    kind = "schedules"
    due = schedule_keys.SCHEDULES_DUE
    place = re.compile(r"[A-Za-z0-9_.-]{1,64}")

    def listed(self, tag: str) -> Key:
        return schedule_keys.schedules(tag)

    def erasure(self, tag: str) -> Key:
        return schedule_keys.schedules_erasure(tag)

    def keys_of(self, tag: str, name: str) -> Sequence[Key]:
        return schedule_keys.schedule(tag, name), schedule_keys.schedule_ticks(tag, name)

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

    async def samples(self, part: Part[Any]) -> Samples:
        schedules: Schedules = part(Schedules)
        counts = await schedules.counts()
        ticks: Values = {(outcome,): counts.get(outcome, 0) for outcome in get_args(TickOutcome)}
        return {"palaver_schedule_ticks_total": ticks}


STORE_SIDE: Final = _Schedules()
