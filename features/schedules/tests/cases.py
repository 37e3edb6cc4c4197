"""The cases of schedules in tests of the core."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from features.schedules import schedule_keys
from features.schedules.contract import NextTick
from features.schedules.schedules import ScheduleOrder, Schedules
from features.schedules.ticks import Ticks
from palaver.schemas.bearers import Bearer
from palaver.schemas.schedules import ScheduledRun, ScheduleTick, Timing
from palaver.store import Store

PARAMETERS: Final = (("get /v1/schedules/{name}", "name", "nightly", "*"),)

NO_PART: Final = {
    "DELETE /v1/schedules/{name}": "it ends something",
    "POST /v1/schedules/{name}/pause": "it ends something",
}
ENDOWED: Final = 3


async def endow(store: Store, tag: str, words: str) -> None:
    """A schedule with a tick that is over, one with a tick that is carried out, and one that is paused."""
    order, timing = ScheduleOrder(ScheduledRun(agent="support", input=words), Bearer(words)), Timing(every=60)
    ahead = NextTick(2**42, 2**42)
    for name in ("over", "claimed", "paused"):
        await store.part(Schedules).keep(tag, f"{name}-{words}", order, timing, NextTick(1000, 1000))
    await store.part(Schedules).pause(tag, f"paused-{words}", by=words)
    due, _ = await store.part(Ticks).due()
    for each in due:
        if each.tenant == tag:
            claimed = await store.part(Ticks).claim(each, 1000, None, ahead)
            assert claimed is not None
            if each.name.startswith("over"):
                moment = datetime.fromtimestamp(1, UTC)
                await store.part(Ticks).settle(claimed, ScheduleTick(tick=moment, at=moment, outcome="skipped"))


async def check_key(redis: Any, name: str, ttl: int) -> None:
    """Schedules stay; each is listed, and has its place in the index as long as a tick is to come."""
    _, _, rest = name.partition("}:")
    kind, _, about = rest.partition(":")
    if kind == "erasure":
        assert ttl > 0, f"{name} has no TTL"
        return
    assert ttl == -1 or rest == "promised", f"{name} has a TTL"
    tag, _, schedule = about.partition(":")
    if kind in ("schedule", "ticks"):
        assert await redis.zscore(schedule_keys.schedules(tag), schedule) is not None, f"{name} is not listed"
    if kind == "schedule":
        fields = {field.decode(): value.decode() for field, value in (await redis.hgetall(name)).items()}
        at = await redis.zscore(schedule_keys.SCHEDULES_DUE, f"{tag}/{schedule}")
        expected = fields.get("lasts") if "tick" in fields else fields.get("at")
        assert at == (None if expected is None else float(expected)), f"{name} is due at {at}, not at {expected}"
        assert ("tick" in fields) == ("tick_order" in fields) == ("claimed_at" in fields) == ("lasts" in fields)
        assert not ("paused" in fields and "next" in fields), f"{name} is paused, and has a next tick"
    else:
        assert kind in ("due", "of", "ticks", "counts", "promised"), f"{name} is no key of a schedule"
