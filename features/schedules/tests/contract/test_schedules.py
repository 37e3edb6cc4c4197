"""Schedules and their ticks: versioned, bounded, each tick claimed by one process and settled once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from features.schedules import schedule_keys
from features.schedules.contract import NextTick
from features.schedules.problems import UnknownSchedule
from features.schedules.schedules import ScheduleOrder, Schedules
from features.schedules.ticks import DueTick, TickClaim, Ticks
from palaver.errors import StateConflict
from palaver.schemas.bearers import Bearer
from palaver.schemas.models import AgentSpec
from palaver.schemas.schedules import ScheduledRun, ScheduleTick, Timing
from palaver.store import Store
from palaver.vocabulary.limits import limit_of

AGENT = AgentSpec(model="fake/echo")
ORDER = ScheduleOrder(ScheduledRun(agent=AGENT, input="one"), Bearer("ann"))
OTHER = ScheduleOrder(ScheduledRun(agent=AGENT, input="two"), Bearer("bob"))
TIMING = Timing(every=60)
PAST = NextTick(1_000, 1_000)
AHEAD = NextTick(2**42, 2**42)


async def due(store: Store) -> DueTick:
    """The one that is due."""
    (found,) = (await store.part(Ticks).due())[0]
    return found


async def claim(store: Store) -> TickClaim:
    """The claim of the tick that is due."""
    claimed = await store.part(Ticks).claim(await due(store), 1_000, None, AHEAD)
    assert claimed is not None
    return claimed


def over(run_id: str | None = "run_1") -> ScheduleTick:
    """The end of the tick."""
    moment = datetime.fromtimestamp(1, UTC)
    return ScheduleTick(tick=moment, at=moment, outcome="started" if run_id else "skipped", run_id=run_id)


async def run_out(redis: Any, name: str = "nightly") -> None:
    """Let a claim last no longer."""
    await redis.hset(schedule_keys.schedule("", name), "lasts", 1)
    await redis.zadd(schedule_keys.SCHEDULES_DUE, {f"/{name}": 1})


async def test_one_is_kept_changed_and_removed(store: Store) -> None:
    assert await store.part(Schedules).keep("", "nightly", ORDER, TIMING, AHEAD) == (1, True)
    assert await store.part(Schedules).keep("", "nightly", ORDER, TIMING, AHEAD) == (1, False), "a repeat"
    assert await store.part(Schedules).keep("", "nightly", OTHER, TIMING, AHEAD) == (2, False)
    found, order = await store.part(Schedules).get("", "nightly")
    assert (order, found.run.input, found.created_by, found.updated_by) == (OTHER, "two", "ann", "bob")
    for expected in (0, 1):
        with pytest.raises(StateConflict, match="its version is 2"):
            await store.part(Schedules).keep("", "nightly", ORDER, TIMING, AHEAD, expected=expected)
        with pytest.raises(StateConflict, match="its version is 2"):
            await store.part(Schedules).remove("", "nightly", expected=expected)
    await store.part(Schedules).remove("", "nightly", expected=2)
    for gone in (store.part(Schedules).get, store.part(Schedules).remove):
        with pytest.raises(UnknownSchedule):
            await gone("", "nightly")
    assert await store.part(Ticks).due() == ([], None)


async def test_they_are_listed_by_name_for_their_tenant_and_no_more_than_there_may_be(store: Store, redis: Any) -> None:
    for name in ("c", "a", "b"):
        await store.part(Schedules).keep("", name, ORDER, TIMING, AHEAD)
    await store.part(Schedules).keep("acme00", "d", ORDER, TIMING, AHEAD)
    first = await store.part(Schedules).list("", limit=2)
    rest = await store.part(Schedules).list("", after=first.last, limit=2)
    assert [each.name for each in (*first.schedules, *rest.schedules)] == ["a", "b", "c"]
    assert (first.more, rest.more) == (True, False)
    await redis.zadd(schedule_keys.schedules(""), {f"x{n}": 0 for n in range(limit_of("schedules"))})
    with pytest.raises(StateConflict) as refused:
        await store.part(Schedules).keep("", "one-more", ORDER, TIMING, AHEAD)
    assert refused.value.code == "schedules_full"
    await redis.zrem(schedule_keys.schedules(""), *(f"x{n}" for n in range(limit_of("schedules"))))


async def test_a_tick_is_claimed_by_one_and_settled_once(store: Store) -> None:
    await store.part(Schedules).keep("", "nightly", ORDER, TIMING, PAST)
    seen = await due(store)
    claimed = await store.part(Ticks).claim(seen, 1_000, 500, AHEAD)
    assert claimed is not None
    assert (claimed.tick, claimed.order, claimed.last, claimed.missed_since) == (1_000, ORDER, None, 500)
    assert await store.part(Ticks).claim(seen, 1_000, None, AHEAD) is None, "somebody has it"
    assert (await store.part(Ticks).due())[0] == []
    assert await store.part(Ticks).settle(claimed, over())
    assert not await store.part(Ticks).settle(claimed, over("run_2")), "it is over"
    assert await store.part(Ticks).claim(seen, 1_000, None, AHEAD) is None, "it is not due any more"
    found, _ = await store.part(Schedules).get("", "nightly")
    assert [tick.run_id for tick in found.ticks] == ["run_1"]
    assert (found.last_run_id, found.waiting_since) == ("run_1", None)


async def test_what_was_claimed_is_gone_on_with_as_it_was_whatever_was_changed(store: Store, redis: Any) -> None:
    await store.part(Schedules).keep("", "nightly", ORDER, TIMING, PAST)
    slow = await claim(store)
    assert await store.part(Schedules).keep("", "nightly", OTHER, Timing(every=90), AHEAD) == (2, False)
    await run_out(redis)
    second = await store.part(Ticks).claim(await due(store), 9_000, None, AHEAD)
    assert second is not None
    assert (second.tick, second.order, second.claimed_at) == (1_000, ORDER, slow.claimed_at)
    assert not await store.part(Ticks).settle(slow, over("run_slow"))
    assert await store.part(Ticks).settle(second, over("run_second"))
    found, _ = await store.part(Schedules).get("", "nightly")
    assert [tick.run_id for tick in found.ticks] == ["run_second"]


async def test_another_run_at_the_same_times_leaves_what_is_due(store: Store) -> None:
    await store.part(Schedules).keep("", "nightly", ORDER, TIMING, PAST)
    stale = await due(store)
    await store.part(Schedules).keep("", "nightly", OTHER, TIMING, AHEAD)
    assert await store.part(Ticks).claim(stale, 1_000, None, AHEAD) is None, "it was read before that"
    assert (await claim(store)).order == OTHER


async def test_one_that_waits_is_looked_at_again_and_pausing_takes_the_next_away(store: Store, redis: Any) -> None:
    await store.part(Schedules).keep("", "nightly", ORDER, TIMING, PAST)
    claimed = await claim(store)
    assert await store.part(Ticks).wait(claimed, 30.0)
    assert not await store.part(Ticks).settle(claimed, over()), "it is anybody's now"
    await store.part(Schedules).pause("", "nightly", by="ann")
    await run_out(redis)
    again = await store.part(Ticks).claim(await due(store), 0, None, NextTick(None, None))
    assert again is not None
    assert await store.part(Ticks).settle(again, over(None))
    found, _ = await store.part(Schedules).get("", "nightly")
    assert (found.paused, found.next_at, found.last_run_id) == (True, None, None)
    assert await store.part(Ticks).due() == ([], None)
    for _ in range(2):
        await store.part(Schedules).resume("", "nightly", PAST, by="ann")
    assert (await due(store)).version == 3
    with pytest.raises(UnknownSchedule):
        await store.part(Schedules).pause("", "nobody", by=None)


async def test_one_that_is_removed_meanwhile_stays_so(store: Store, redis: Any) -> None:
    await store.part(Schedules).keep("", "nightly", ORDER, TIMING, PAST)
    claimed = await claim(store)
    await store.part(Schedules).remove("", "nightly")
    assert not await store.part(Ticks).settle(claimed, over())
    await store.part(Ticks).defer("", "nightly")
    assert not await redis.exists(
        schedule_keys.SCHEDULES_DUE, schedule_keys.schedule("", "nightly"), schedule_keys.schedule_ticks("", "nightly")
    )
    await redis.zadd(schedule_keys.SCHEDULES_DUE, {"/nightly": 1})
    assert await store.part(Ticks).claim(await due(store), 0, None, AHEAD) is None
    assert await store.part(Ticks).due() == ([], None), "a place in the index without a schedule"


async def test_the_last_ticks_are_shown(store: Store, redis: Any) -> None:
    await store.part(Schedules).keep("", "nightly", ORDER, TIMING, PAST)
    for _ in range(limit_of("schedule_ticks")):
        await redis.xadd(schedule_keys.schedule_ticks("", "nightly"), {"tick": over("run_0").model_dump_json()})
    await store.part(Ticks).settle(await claim(store), over())
    found, _ = await store.part(Schedules).get("", "nightly")
    assert len(found.ticks) == limit_of("schedule_ticks")
    assert [tick.run_id for tick in found.ticks][:2] == ["run_1", "run_0"], "the newest first"


async def test_one_is_left_alone_for_a_while_with_which_something_is_wrong(store: Store) -> None:
    await store.part(Schedules).keep("", "nightly", ORDER, TIMING, PAST)
    await store.part(Ticks).defer("", "nightly")
    found, upcoming = await store.part(Ticks).due()
    assert found == []
    assert upcoming is not None
    assert 590 < upcoming <= 600
    await store.part(Schedules).remove("", "nightly")


async def test_one_that_cannot_be_read_holds_up_no_other(store: Store, redis: Any) -> None:
    await store.part(Schedules).keep("", "broken", ORDER, TIMING, PAST)
    await store.part(Schedules).keep("", "nightly", ORDER, TIMING, PAST)
    await redis.hset(schedule_keys.schedule("", "broken"), "timing", "{")
    for _ in range(2):
        assert (await due(store)).name == "nightly"
    assert await redis.zscore(schedule_keys.SCHEDULES_DUE, "/broken") > PAST.at, "it has no place before others"
    for name in ("nightly", "broken"):
        await store.part(Schedules).remove("", name)
