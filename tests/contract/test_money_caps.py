"""Caps in money: what calls may cost is reserved before they begin, and what waits begins when there is room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from fakeredis import FakeServer

from palaver.config.settings import Settings
from palaver.errors import StaleLease
from palaver.schemas.models import Message, Usage
from palaver.schemas.tenants import CapsChange
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue, Finish, HandBack, Postpone
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from palaver.store.scripting.contracts.providers import Wait
from palaver.vocabulary.ids import MAX_SHARDS, shard_of, shards_of_tenant
from palaver.vocabulary.lifecycle import StopReason, WaitReason
from tests.contract.clock import Clock
from tests.contract.invariants import check_whole
from tests.contract.store_driver import PAUSE, RESUME, StoreDriver
from tests.contract.witness import Moves, WitnessedFake

TAG = "0000m1"
ONE = Reach(TAG)


async def cap(store: Store, tag: str = TAG, **caps: Any) -> None:
    await store.caps.change(tag, CapsChange(**caps))


async def begin(driver: StoreDriver, tag: str = TAG, **more: Any) -> Lease:
    with within(Reach(tag)):
        _, lease = await driver.begin(**more)
    return lease


async def reserve(
    store: Store, lease: Lease, least: float, most: float, *, call: int = 1, spent: float | None = 0.0
) -> Wait | None:
    return await store.caps.reserve(lease, call, spent=spent, least=least, most=most, tokens=1)


async def reserved(redis: Any, tag: str = TAG) -> float:
    return int(await redis.hget(keys.meters("00"), f"{keys.owner(tag)}reserved") or 0) / 1e9


async def finish(store: Store, lease: Lease, cost: float | None) -> None:
    usage = Usage(input_tokens=1, output_tokens=1, model_calls=1, cost_usd=cost)
    await store.steps.settle(lease, Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=usage))


async def hold(driver: StoreDriver, lease: Lease, wait: Wait | None) -> None:
    """The worker leaves the step for later; the next one will have waited for less."""
    assert wait is not None
    assert wait.of_tenant
    await driver.store.steps.settle(lease, Postpone(wait.seconds, wait.code, WaitReason.TENANT_LIMIT))
    await driver.behind(await driver.store.runs.now())


async def allowed(store: Store) -> Sequence[str]:
    """The runs that may begin by now, delivered."""
    found = await store.caps.allowed()
    assert all(await store.steps.promote(found))
    return [run_id for _, run_id, _ in found]


@pytest.mark.parametrize("tag", [TAG, ""])
async def test_what_is_under_way_counts_as_if_it_were_spent(
    store: Store, driver: StoreDriver, redis: Any, tag: str
) -> None:
    await cap(store, tag, usd_per_day=1)
    first, second, third = [await begin(driver, tag) for _ in range(3)]
    assert first.money_capped
    assert await reserve(store, first, 0.1, 0.4) is None
    assert await reserve(store, second, 0.1, 0.4) is None
    assert await reserved(redis, tag) == 0.8
    wait = await reserve(store, third, 0.21, 0.3)
    assert wait is not None
    assert (wait.code, wait.of_tenant, wait.failure) == ("usd_per_day", True, None)
    assert 0 < wait.seconds <= 86400
    await hold(driver, third, wait)
    waiting = (await driver.get(third.run_id)).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.code) == (WaitReason.TENANT_LIMIT, "usd_per_day")
    assert waiting.until is not None
    assert await allowed(store) == []
    await finish(store, first, 0.3)
    assert await reserved(redis, tag) == 0.4
    assert await allowed(store) == [third.run_id]
    await finish(store, second, 0.4)
    assert await reserved(redis, tag) == 0.0


async def test_others_have_their_own_money(store: Store, driver: StoreDriver, redis: Any) -> None:
    await cap(store, usd_per_day=1)
    await cap(store, "", usd_per_day=1)
    lease = await begin(driver)
    assert await reserve(store, lease, 0.1, 1.0) is None
    other = await begin(driver, "")
    assert await reserve(store, other, 0.1, 1.0) is None
    assert (await reserved(redis), await reserved(redis, "")) == (1.0, 1.0)
    uncapped = await begin(driver, "0000m2")
    assert not uncapped.money_capped
    assert await reserve(store, uncapped, 0.1, 1.0) is None
    assert await reserved(redis, "0000m2") == 0.0


async def test_the_overdraft_is_the_output_of_one_call(store: Store, driver: StoreDriver, redis: Any) -> None:
    """Each call costs as much as it may: what was begun last is what goes beyond the cap."""
    await cap(store, usd_per_day=1)
    leases = [await begin(driver) for _ in range(50)]
    begun = [lease for lease in leases if await reserve(store, lease, 0.01, 0.07) is None]
    for lease in begun:
        await finish(store, lease, 0.07)
    spent = 0.07 * len(begun)
    assert 1.0 < spent <= 1.0 + 0.06
    for lease in leases[len(begun) :]:
        assert await reserve(store, lease, 0.01, 0.07) is not None


async def test_what_was_spent_before_the_cap_counts(store: Store, driver: StoreDriver) -> None:
    await finish(store, await begin(driver), 0.7)
    await cap(store, usd_per_month=1)
    lease = await begin(driver)
    wait = await reserve(store, lease, 0.31, 0.4)
    assert wait is not None
    assert wait.code == "usd_per_month"
    assert await reserve(store, lease, 0.29, 0.4) is None


async def test_a_call_that_is_asked_for_twice_reserves_once(store: Store, driver: StoreDriver, redis: Any) -> None:
    await cap(store, usd_per_day=1)
    lease, other = await begin(driver), await begin(driver)
    with driver.answers_get_lost():
        assert await reserve(store, lease, 0.1, 0.6) is None
        assert await reserved(redis) == 0.6
        # The second call of the attempt: the first one cost less than it might have.
        assert await reserve(store, lease, 0.1, 0.6, call=2, spent=0.2) is None
        assert await reserved(redis) == 0.8
        # Nobody knows what the second one cost: it counts as it was reserved.
        assert await reserve(store, lease, 0.1, 0.15, call=3, spent=None) is None
        assert await reserved(redis) == pytest.approx(0.95)
        wait = await reserve(store, other, 0.06, 0.6)
        assert wait is not None
        await hold(driver, other, wait)
        await finish(store, lease, 0.5)
    assert await reserved(redis) == 0.0


async def test_its_own_reservation_holds_up_no_call_of_an_attempt(store: Store, driver: StoreDriver) -> None:
    await cap(store, usd_per_day=1)
    lease = await begin(driver)
    assert await reserve(store, lease, 0.1, 1.5) is None
    assert await reserve(store, lease, 0.1, 1.5, call=2, spent=0.2) is None
    wait = await reserve(store, lease, 0.1, 1.5, call=3, spent=0.95)
    assert wait is not None


async def _is_lost(driver: StoreDriver, lease: Lease) -> None:
    await driver.lose(lease)


async def _is_handed_back(driver: StoreDriver, lease: Lease) -> None:
    await driver.store.steps.settle(lease, HandBack(True, Usage(model_calls=1, input_tokens=5, cost_usd=0.1)))


async def _is_tried_again(driver: StoreDriver, lease: Lease) -> None:
    await driver.retry(lease)


async def _is_cancelled(driver: StoreDriver, lease: Lease) -> None:
    await driver.store.runs.cancel(lease.run_id)
    await driver.finish(lease)


async def _is_lost_while_it_is_cancelled(driver: StoreDriver, lease: Lease) -> None:
    await driver.store.runs.cancel(lease.run_id)
    await driver.lose(lease)


async def _runs_out_of_time(driver: StoreDriver, lease: Lease) -> None:
    await driver.redis.hset(keys.run(lease.run_id), "deadline", 1)
    await driver.redis.zadd(keys.due("00"), {f"{lease.run_id}/end": 1})
    await driver.sweep(lease.run_id, "end")


async def _is_postponed(driver: StoreDriver, lease: Lease) -> None:
    await driver.postpone(lease)


async def _asks_for_a_tool(driver: StoreDriver, lease: Lease) -> None:
    await driver.ask(lease, "c1")


async def _is_paused_at_once(driver: StoreDriver, lease: Lease) -> None:
    await driver.act(lease.run_id, PAUSE)
    await driver.hand_back(lease)


async def _goes_on_in_place(driver: StoreDriver, lease: Lease) -> None:
    usage = Usage(model_calls=1, input_tokens=5, cost_usd=0.1)
    verdict = Continue(Message(role="assistant", content="and"), usage=usage)
    settled = await driver.store.steps.settle(lease, verdict, place=await driver.place(lease))
    assert [following.money_capped for following in settled.following] == [True]


@pytest.mark.parametrize(
    "ends",
    [
        _is_lost, _is_handed_back, _is_tried_again, _is_cancelled, _is_lost_while_it_is_cancelled, _runs_out_of_time,
        _is_postponed, _asks_for_a_tool, _is_paused_at_once, _goes_on_in_place,
    ],
)  # fmt: skip
@pytest.mark.parametrize("twice", [False, True], ids=["", "answers lost"])
async def test_what_is_reserved_goes_with_the_lease(
    store: Store, driver: StoreDriver, redis: Any, ends: Any, twice: bool
) -> None:
    await cap(store, usd_per_day=5)
    lease = await begin(driver)
    assert await reserve(store, lease, 0.1, 0.4) is None
    if twice:
        with driver.answers_get_lost():
            await ends(driver, lease)
    else:
        await ends(driver, lease)
    assert await reserved(redis) == 0.0
    with pytest.raises(StaleLease):
        await reserve(store, lease, 0.1, 0.4, call=2)


async def test_a_call_whose_cost_nobody_knows_costs_what_was_reserved(store: Store, driver: StoreDriver) -> None:
    await cap(store, usd_per_day=1)
    lease, other = await begin(driver), await begin(driver)
    assert await reserve(store, lease, 0.1, 0.9) is None
    await finish(store, lease, None)
    wait = await reserve(store, other, 0.11, 0.2)
    assert wait is not None
    assert await reserve(store, other, 0.09, 0.2) is None


async def test_what_waits_begins_when_the_cap_is_raised_or_taken_away(store: Store, driver: StoreDriver) -> None:
    await cap(store, usd_per_day=0.5)
    leases = [await begin(driver) for _ in range(3)]
    for lease in leases:
        await hold(driver, lease, await reserve(store, lease, 0.6, 0.7))
    assert await allowed(store) == []
    await cap(store, usd_per_day=1)
    # What the first one may cost is not there for the second.
    assert await allowed(store) == [leases[0].run_id]
    await cap(store, usd_per_day=None)
    assert await allowed(store) == [leases[1].run_id, leases[2].run_id]
    assert await allowed(store) == []


async def test_what_is_too_dear_keeps_nobody_behind_it_waiting(store: Store, driver: StoreDriver) -> None:
    await cap(store, usd_per_day=1)
    first = await begin(driver)
    assert await reserve(store, first, 0.1, 1.0) is None
    dear, cheap = await begin(driver), await begin(driver)
    for lease, least in ((dear, 0.9), (cheap, 0.1)):
        await hold(driver, lease, await reserve(store, lease, least, least))
    await finish(store, first, 0.5)
    assert await allowed(store) == [cheap.run_id]


async def test_who_waits_keeps_his_place_while_he_is_refused(store: Store, driver: StoreDriver) -> None:
    await cap(store, usd_per_day=0.1)
    leases = [await begin(driver) for _ in range(2)]
    for lease in leases:
        await hold(driver, lease, await reserve(store, lease, 0.2, 0.3))
    await cap(store, usd_per_day=0.25)
    (again,) = await store.caps.allowed()
    (settled,) = await store.steps.promote([again])
    assert settled is not None
    lease = await driver.claim(settled.deliveries[0])
    await cap(store, usd_per_day=0.1)
    await hold(driver, lease, await reserve(store, lease, 0.2, 0.3))
    await cap(store, usd_per_day=5)
    assert await allowed(store) == [lease.run_id for lease in leases]


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_run_that_is_paused_or_ends_waits_for_no_cap(store: Store, driver: StoreDriver, resumed: bool) -> None:
    await cap(store, usd_per_day=0.1)
    lease = await begin(driver)
    await hold(driver, lease, await reserve(store, lease, 0.2, 0.3))
    await driver.act(lease.run_id, PAUSE)
    if resumed:
        await driver.act(lease.run_id, RESUME)
    await cap(store, usd_per_day=1)
    assert await allowed(store) == ([lease.run_id] if resumed else [])
    await store.runs.cancel(lease.run_id)
    assert await allowed(store) == []


async def test_many_tenants_are_looked_at_some_at_a_time(store: Store, driver: StoreDriver) -> None:
    tags = ["", *(f"0000{number:02}" for number in range(60))]
    runs = set()
    for tag in tags:
        await cap(store, tag, usd_per_day=0.1)
        lease = await begin(driver, tag)
        runs.add(lease.run_id)
        await hold(driver, lease, await reserve(store, lease, 0.2, 0.3))
        await cap(store, tag, usd_per_day=None)
    first, rest = await allowed(store), await allowed(store)
    assert (len(first), {*first, *rest}) == (50, runs)


async def test_of_many_sweepers_one_looks(store: Store, driver: StoreDriver, redis: Any) -> None:
    await cap(store, usd_per_day=0.1)
    lease = await begin(driver)
    assert await store.caps.allowed(every=60) == []
    assert not await redis.exists(keys.meters("00"))
    await hold(driver, lease, await reserve(store, lease, 0.2, 0.3))
    await cap(store, usd_per_day=1)
    assert len(await store.caps.allowed(every=60)) == 1
    assert await store.caps.allowed(every=60) == []
    assert len(await store.caps.allowed()) == 1


async def test_a_step_whose_run_was_deleted_by_hand_is_forgotten(store: Store, driver: StoreDriver, redis: Any) -> None:
    await cap(store, usd_per_day=0.1)
    lease = await begin(driver)
    await hold(driver, lease, await reserve(store, lease, 0.2, 0.3))
    await store.runs.cancel(lease.run_id)
    gone = f"@{TAG}:0001761234567 {lease.conversation_id}/{lease.run_id}/1"
    await redis.zadd(keys.held("00"), {gone: 0})
    await redis.hincrby(keys.meters("00"), f"@{TAG}:held", 1)
    assert await store.caps.allowed() == []
    assert not await redis.exists(keys.held("00"))


@pytest.mark.parametrize(
    ("now", "day_ends", "month_ends"),
    [
        ("2026-11-26T11:00", "2026-11-27", "2026-12-01"),
        ("2026-12-31T23:59", "2027-01-01", "2027-01-01"),
        ("2028-02-28T00:00", "2028-02-29", "2028-03-01"),
        ("2027-02-28T00:00", "2027-03-01", "2027-03-01"),
        ("2100-02-01T00:00", "2100-02-02", "2100-03-01"),
        ("2000-02-29T12:00", "2000-03-01", "2000-03-01"),
    ],
)
async def test_days_and_months_are_those_of_utc(clock: Clock, now: str, day_ends: str, month_ends: str) -> None:
    redis: Any = WitnessedFake(server=FakeServer())
    redis.moves = Moves()
    store = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0"))
    driver = StoreDriver(store, redis)
    at = datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp()
    clock.now = at
    # Of two that hold it up, it waits for the one that does so for longer.
    for per_day, per_month, ends in ((0.1, None, day_ends), (None, 0.1, month_ends), (0.1, 0.1, month_ends)):
        await cap(store, usd_per_day=per_day, usd_per_month=per_month)
        wait = await reserve(store, await begin(driver), 0.2, 0.3)
        assert wait is not None
        assert datetime.fromtimestamp(at + wait.seconds, UTC).date().isoformat() == ends
    await check_whole(redis)


async def test_a_month_is_the_sum_of_its_days(clock: Clock) -> None:
    redis: Any = WitnessedFake(server=FakeServer())
    redis.moves = Moves()
    store = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0"))
    driver = StoreDriver(store, redis)
    await cap(store, usd_per_month=1, usd_per_day=0.6)
    for day, may_cost in (("2026-10-31", 0.5), ("2026-11-01", 0.5), ("2026-11-30", 0.4)):
        clock.now = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
        lease = await begin(driver)
        assert await reserve(store, lease, may_cost, may_cost) is None
        await finish(store, lease, may_cost)
    wait = await reserve(store, await begin(driver), 0.11, 0.2)
    assert wait is not None
    assert wait.code == "usd_per_month"
    clock.now += 86400
    assert await reserve(store, await begin(driver), 0.6, 0.6) is None


async def test_with_several_shards_each_has_its_part(redis: Any, settings: Settings) -> None:
    store = Store(redis, settings.model_copy(update={"shards": 4}))
    driver = StoreDriver(store, redis)
    await cap(store, usd_per_day=1, max_queued=4)
    lease = await begin(driver)
    assert await reserve(store, lease, 0.26, 0.3) is not None
    assert await reserve(store, lease, 0.25, 0.3) is None
    assert {keys.caps(f"{shard:02}"): 2 for shard in range(4)} == {
        key.decode(): await redis.hlen(key) for key in await redis.keys("*:caps")
    }


async def test_of_many_shards_a_tenant_has_a_few_and_each_of_them_its_part(redis: Any, settings: Settings) -> None:
    store = Store(redis, settings.model_copy(update={"shards": MAX_SHARDS}))
    driver = StoreDriver(store, redis)
    await cap(store, usd_per_day=1, max_queued=32)
    leases = [await begin(driver) for _ in range(20)]
    assert {shard_of(lease.conversation_id) for lease in leases} <= {*shards_of_tenant(TAG, MAX_SHARDS)}
    assert await reserve(store, leases[0], 0.07, 0.07) is not None
    assert await reserve(store, leases[0], 0.06, 0.0625) is None
