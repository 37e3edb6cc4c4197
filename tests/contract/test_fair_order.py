"""Tenants take turns once more steps are ready than workers take at once (ADR 0094)."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import pytest

from palaver.config.providers import Limits
from palaver.schemas.models import Message, Retry, Usage
from palaver.schemas.tenants import CapsChange
from palaver.steps.leases import Delivery, Lease, OfferedPlace, Stray
from palaver.steps.verdicts import Continue, Finish
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from palaver.store.scripting.contracts.providers import Admitted, Wait
from palaver.vocabulary.ids import tenant_of
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason
from palaver.vocabulary.step_kinds import AT_ONCE, WINDOW
from tests.contract.store_driver import PAUSE, RATE_LIMITED, RESUME, StoreDriver, calls

A, B, C = "0000m1", "0000m2", "0000m3"


class Fleet:
    """Workers with so many places, that take deliveries in the order in which the queue has them."""

    def __init__(self, driver: StoreDriver, places: int) -> None:
        self.driver = driver
        self.places = places
        self.queue: deque[Delivery] = deque()
        self.held: deque[Lease] = deque()
        self.begun: list[str] = []
        """The tenant of each step, in the order in which they were claimed."""

    async def submit(self, tenant: str, runs: int, **more: Any) -> list[str]:
        """Submit runs of a tenant."""
        ids = []
        with within(Reach(tenant)):
            for _ in range(runs):
                submitted = await self.driver.submit(**more)
                self.queue += submitted.deliveries
                ids.append(submitted.run_id)
        return ids

    async def take(self) -> None:
        """Fill all places, as far as there are deliveries."""
        while self.queue and len(self.held) < self.places:
            lease = await self.driver.try_claim(self.queue.popleft())
            if isinstance(lease, Stray):
                continue
            self.queue += lease.deliveries
            self.held.append(lease)
            self.begun.append(tenant_of(lease.run_id))

    async def end_one(self, tokens: int = 0, *, last: bool = True) -> Lease:
        """End the oldest step, and with it its run, if it is the ``last``."""
        lease = self.held.popleft()
        message = Message(role="assistant", content="done")
        usage = Usage(output_tokens=tokens, model_calls=1)
        verdict = Finish(message, StopReason.END_TURN, usage=usage) if last else Continue(message, usage=usage)
        settled = await self.driver.store.steps.settle(lease, verdict)
        self.queue += settled.deliveries
        return lease

    async def work(self, steps: int, tokens: dict[str, int] | None = None, *, last: bool = True) -> Counter[str]:
        """Do so many steps; how many of each tenant's were begun meanwhile. No place is idle while anybody waits."""
        before = len(self.begun)
        while len(self.begun) - before < steps:
            await self.take()
            assert len(self.held) == self.places
            await self.end_one((tokens or {}).get(tenant_of(self.held[0].run_id), 0), last=last)
        return Counter(self.begun[before:])


async def set_caps(driver: StoreDriver, tenant: str, **caps: Any) -> Sequence[Delivery]:
    """Change caps of a tenant. Sweepers see to what follows."""
    await driver.store.caps.change(tenant, CapsChange(**caps))
    return await driver.store.due.fill()


async def test_what_there_is_room_for_is_delivered_at_once(driver: StoreDriver, redis: Any) -> None:
    fleet = Fleet(driver, 4)
    await fleet.submit("", WINDOW)
    assert len(fleet.queue) == WINDOW
    late = await fleet.submit("", 2)
    assert len(fleet.queue) == WINDOW
    held_back = {member.decode() for member in await redis.zrange(keys.backlog("00", "model"), 0, -1)}
    assert held_back == {f"{run_id}/1" for run_id in late}
    await fleet.take()
    assert len(fleet.queue) == WINDOW - 2
    assert not await redis.exists(keys.backlog("00", "model"), keys.undelivered("00", "model"))


async def test_ten_runs_do_not_wait_for_a_thousand(driver: StoreDriver) -> None:
    """Each of the ten waits for what is delivered already, and then for one of the others'."""
    fleet = Fleet(driver, 4)
    await fleet.submit(A, 120)
    ten = await fleet.submit(B, 10)
    begun = await fleet.work(WINDOW + 4 + 20)
    assert begun[B] == 10
    assert {(await driver.get(run_id)).status for run_id in ten} <= {RunStatus.COMPLETED, RunStatus.RUNNING}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((3, 1), 0.75),
        pytest.param((1, 1), 0.5, marks=pytest.mark.chaos),
        pytest.param((2, 3), 0.4, marks=pytest.mark.slow),
    ],
)
async def test_turns_follow_weights(driver: StoreDriver, weights: tuple[int, int], expected: float) -> None:
    fleet = Fleet(driver, 3)
    for tenant, weight in zip((A, B), weights, strict=True):
        await set_caps(driver, tenant, weight=weight)
        await fleet.submit(tenant, 40)
    await fleet.work(60, last=False)
    begun = await fleet.work(400, last=False)
    assert begun[A] / 400 == pytest.approx(expected, abs=0.01)


@pytest.mark.slow
async def test_a_weight_that_changes_holds_for_a_backlog_that_waits(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 3)
    for tenant in (A, B):
        await fleet.submit(tenant, 40)
    await fleet.work(60, last=False)
    assert (await fleet.work(200, last=False))[A] == pytest.approx(100, abs=2)
    await set_caps(driver, A, weight=9)
    await fleet.work(40, last=False)
    assert (await fleet.work(200, last=False))[A] == pytest.approx(180, abs=4)


@pytest.mark.slow
async def test_tokens_are_charged_once_they_are_known(driver: StoreDriver) -> None:
    """A step that took 3,000 tokens counts as four, of which none was known when it began."""
    fleet = Fleet(driver, 3)
    for tenant in (A, B):
        await fleet.submit(tenant, 40)
    tokens = {A: 3000, B: 0}
    await fleet.work(300, tokens, last=False)
    begun = await fleet.work(400, tokens, last=False)
    assert begun[B] / begun[A] == pytest.approx(4, rel=0.05)


@pytest.mark.slow
async def test_who_was_away_has_no_turns_to_catch_up_on(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 3)
    for tenant in (A, B):
        await fleet.submit(tenant, 40)
    await fleet.work(300, last=False)
    await fleet.submit(C, 40)
    await fleet.work(60, last=False)
    begun = await fleet.work(300, last=False)
    assert all(begun[tenant] == pytest.approx(100, abs=3) for tenant in (A, B, C))


@pytest.mark.slow
async def test_a_thousand_tenants_each_have_a_turn(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 4)
    await fleet.submit(A, 200)
    names = [f"{number:06d}" for number in range(150)]
    for name in names:
        await fleet.submit(name, 1)
    begun = await fleet.work(WINDOW + 4 + 152)
    assert all(begun[name] == 1 for name in names[:-2])


@pytest.mark.slow
async def test_turns_are_charged_from_the_moment_at_which_a_backlog_begins(driver: StoreDriver, redis: Any) -> None:
    """What a busy tenant did while no tenant waited is no debt, and from then on it has one turn of each round."""
    fleet = Fleet(driver, 4)
    await fleet.submit(A, WINDOW)
    await fleet.work(60, {A: 5000}, last=False)
    lists = [f"{{p00}}:{kind}:model" for kind in ("turns", "capped", "ahead")]
    assert not await redis.exists("{p00}:fair", *lists)
    await fleet.submit(A, WINDOW)
    assert await redis.zrange(keys.turns("00", "model"), 0, -1, withscores=True) == [(keys.owner(A).encode(), 0.0)]
    small = [f"{number:06d}" for number in range(100)]
    for name in small:
        await fleet.submit(name, 1)
    delivered = [tenant_of(delivery.run_id) for delivery in fleet.queue]
    assert delivered == [A] * WINDOW
    await fleet.work(WINDOW, last=False)
    begun = await fleet.work(2 * 101, last=False)
    assert begun == dict.fromkeys((A, *small), 2)


async def test_a_cap_holds_and_nobody_else_waits_for_it(driver: StoreDriver) -> None:
    await set_caps(driver, A, max_in_flight=3)
    fleet = Fleet(driver, 8)
    capped = await fleet.submit(A, 20)
    assert len(fleet.queue) == 3
    await fleet.submit(B, 60)
    for _ in range(30):
        await fleet.take()
        assert len(fleet.held) == 8
        assert sum(tenant_of(lease.run_id) == A for lease in fleet.held) <= 3
        await fleet.end_one()
    waiting = [run for run in [await driver.get(run_id) for run_id in capped] if run.waiting]
    assert waiting
    assert {run.waiting.reason for run in waiting if run.waiting} == {WaitReason.TENANT_LIMIT}
    assert {run.waiting.code for run in waiting if run.waiting} == {"max_in_flight"}


async def test_a_cap_that_is_raised_or_taken_away_lets_go_what_waits(driver: StoreDriver) -> None:
    await set_caps(driver, A, max_in_flight=1)
    fleet = Fleet(driver, 8)
    ids = await fleet.submit(A, 10)
    assert len(fleet.queue) == 1
    waits = [run.waiting for run in [await driver.get(run_id) for run_id in ids]]
    assert sorted(wait.position for wait in waits if wait and wait.position) == [*range(1, 10)]
    assert len(await set_caps(driver, A, max_in_flight=4)) == 3
    assert len(await set_caps(driver, A, max_in_flight=None)) == WINDOW - 4


async def test_a_cap_that_is_lowered_ends_what_goes_on_in_place(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 8)
    await fleet.submit(A, 2)
    await fleet.take()
    await set_caps(driver, A, max_in_flight=1)
    lease = fleet.held.popleft()
    place = OfferedPlace("w1", "n", 10.0, lease.log.position, lease.log.position_at, 4)
    settled = await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="hm")), place=place)
    assert not settled.following
    assert settled.deliveries == ()
    done = await driver.finish(fleet.held.popleft())
    assert [delivery.run_id for delivery in done.deliveries] == [lease.run_id]


async def test_nobody_goes_on_in_place_where_somebody_waits_for_a_turn(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 1)
    await fleet.submit(A, 1)
    await fleet.take()
    await fleet.submit(B, WINDOW)
    lease = fleet.held.popleft()
    place = OfferedPlace("w1", "n", 10.0, lease.log.position, lease.log.position_at, 2 * WINDOW)
    goes_on = Continue(Message(role="assistant", content="hm"))
    (following,) = (await driver.store.steps.settle(lease, goes_on, place=place)).following
    (held,) = await fleet.submit(B, 1)
    # All have waited for as long: the worker has room for those that are delivered, and for no other.
    delivered = await driver.redis.zrange(keys.ready("00", "model"), 0, -1)
    assert len(delivered) == WINDOW
    await driver.redis.zadd(keys.ready("00", "model"), dict.fromkeys(delivered, 1))
    await driver.redis.zadd(keys.held_back("00", "model"), {f"{held}/1": 1})
    place = OfferedPlace("w1", "n2", 10.0, following.log.position, following.log.position_at, WINDOW)
    assert not (await driver.store.steps.settle(following, goes_on, place=place)).following


async def test_urgent_runs_go_first_among_those_of_their_tenant(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 1)
    await fleet.submit(A, WINDOW)
    usual = await fleet.submit(A, 2)
    later = await fleet.submit(A, 1, priority=9)
    urgent = await fleet.submit(A, 2, priority=0)
    others = await fleet.submit(B, 2)
    await fleet.take()
    order = []
    for _ in range(WINDOW + 7):
        order.append((await fleet.end_one()).run_id)
        await fleet.take()
    behind = order[WINDOW:]
    own = [run_id for run_id in behind if run_id not in others]
    assert (set(own[:2]), set(own[2:4]), own[4:]) == (set(urgent), set(usual), later)
    assert set(behind[:4]) > set(others)
    again = await driver.store.control.retry(urgent[0], Retry(from_step=1))
    shown = [(await driver.get(run_id)).priority for run_id in (usual[0], later[0], urgent[0], again.run_id)]
    assert shown == [5, 9, 0, 0]


async def test_what_has_begun_goes_before_what_has_not(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 1)
    await fleet.submit(A, WINDOW + 1)
    await fleet.take()
    await fleet.submit(A, 3)
    begun = (await fleet.end_one(last=False)).run_id
    for _ in range(WINDOW):
        await fleet.take()
        await fleet.end_one()
    await fleet.take()
    assert fleet.held[0].run_id == begun


async def test_a_run_that_is_cancelled_leaves_its_place(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 1)
    await fleet.submit(A, WINDOW)
    ids = await fleet.submit(A, 3)
    for run_id in ids[:2]:
        assert (await driver.store.runs.cancel(run_id)).status is RunStatus.CANCELLED
    await fleet.take()
    assert fleet.queue[-1].run_id == ids[2]


async def test_a_delivered_run_that_is_cancelled_makes_room(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 1)
    delivered = await fleet.submit(A, WINDOW)
    (behind,) = await fleet.submit(B, 1)
    settled = await driver.store.runs.cancel(delivered[0])
    assert [delivery.run_id for delivery in settled.deliveries] == [behind]


async def test_a_lost_worker_does_not_cost_its_tenant_a_second_turn(driver: StoreDriver, redis: Any) -> None:
    fleet = Fleet(driver, 1)
    await fleet.submit(A, WINDOW)
    await fleet.submit(A, 2)
    await fleet.submit(B, 2)
    while tenant_of(fleet.queue[-1].run_id) != B:
        await fleet.take()
        await fleet.end_one()
    while not fleet.held or tenant_of(fleet.held[0].run_id) != B:
        if fleet.held:
            await fleet.end_one()
        await fleet.take()
    lists = [keys.turns("00", "model"), "{p00}:ahead:model"]
    before = [await redis.zrange(each, 0, -1, withscores=True) for each in lists]
    (lost,) = await driver.lose(fleet.held[0])
    assert [delivery.queue for delivery in lost.deliveries] == ["model.recovered"]
    assert [await redis.zrange(each, 0, -1, withscores=True) for each in lists] == before


async def test_calls_of_tools_wait_for_their_turn_too(driver: StoreDriver) -> None:
    with within(Reach(A)):
        _, many = await driver.turn(*(f"c{number:02}" for number in range(WINDOW + 8)))
    with within(Reach(B)):
        _, one = await driver.turn("c")
    assert (len(many), len(one)) == (AT_ONCE, 0)
    due: list[Delivery] = []
    for _ in range(3):
        for delivery in many:
            lease = await driver.claim(delivery)
        many = [*lease.deliveries]
        due += many
    assert sorted(tenant_of(delivery.run_id) for delivery in due) == [A, A, B]


async def test_a_step_that_is_tried_again_waits_for_its_turn(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 1)
    await fleet.submit(A, WINDOW)
    await fleet.take()
    await fleet.submit(B, 5)
    lease = fleet.held.popleft()
    settled = await driver.retry(lease, 0.0, RATE_LIMITED)
    assert settled.deliveries == ()
    fleet.queue.clear()
    ready = await driver.redis.zrange(keys.backlog("00", "model", keys.owner(A)), 0, -1)
    assert [member.decode() for member in ready] == [f"{lease.run_id}/1"]


async def test_a_paused_run_is_in_no_line(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 1)
    await fleet.submit(A, WINDOW)
    (paused, other) = await fleet.submit(A, 2)
    await driver.act(paused, PAUSE)
    await fleet.take()
    assert fleet.queue[-1].run_id == other
    await driver.act(paused, RESUME)
    await fleet.end_one()
    await fleet.take()
    assert fleet.queue[-1].run_id == paused


async def test_a_late_delivery_takes_a_held_step_out_of_its_line(driver: StoreDriver) -> None:
    fleet = Fleet(driver, 1)
    (first,) = await fleet.submit(A, 1)
    await fleet.take()
    early = fleet.held[0]
    await fleet.submit(A, WINDOW)
    settled = await driver.retry(early, 0.0, RATE_LIMITED)
    assert settled.deliveries == ()
    late = Delivery("model", first, early.conversation_id, "1", 1)
    assert isinstance(await driver.try_claim(late), Lease)


async def test_a_call_that_opens_more_steps_than_the_cap_keeps_the_rest_back(driver: StoreDriver) -> None:
    await set_caps(driver, A, max_in_flight=2)
    with within(Reach(A)):
        run_id, lease = await driver.begin()
        opened = await driver.store.steps.settle(lease, calls("a", "b", "c"))
    assert len(opened.deliveries) == 2
    tools = [await driver.claim(delivery) for delivery in opened.deliveries]
    settled = await driver.answer(tools[0])
    assert [delivery.step for delivery in settled.deliveries] == ["1/c"]
    assert (await driver.get(run_id)).status is RunStatus.RUNNING


def call_of(tenant: str, number: int) -> str:
    """A call of a model, as a provider's gate knows it."""
    return f"conv_00{tenant}_{number:026}/run_00{tenant}_{number:026}/1"


async def waiting_at(driver: StoreDriver, *crowds: tuple[str, int, int]) -> list[str]:
    """Whose turn it is, one call after the other, where so many calls of tenants with these weights came in this
    order."""
    limits = Limits(max_in_flight=1)
    assert isinstance(await driver.store.providers.admit("p", "first", limits, 0), Admitted)
    for tenant, many, weight in crowds:
        for number in range(many):
            answer = await driver.store.providers.admit("p", call_of(tenant, number), limits, 0, weight=weight)
            assert isinstance(answer, Wait)
    order, woken = [], await driver.store.providers.release("p", "first", limits, tokens=0, used=0)
    while woken:
        (call,) = woken
        order.append(tenant_of(call.split("/")[1]))
        woken = await driver.store.providers.release("p", call, limits, tokens=0, used=0)
    return order


async def test_who_waits_for_a_provider_takes_turns_as_well(driver: StoreDriver) -> None:
    order = await waiting_at(driver, (A, 60, 1), (B, 5, 1))
    assert len(order) == 65
    assert Counter(order[:11])[B] == 5
    order = await waiting_at(driver, (A, 60, 3), (B, 60, 1))
    assert Counter(order[:40]) == pytest.approx({A: 30, B: 10}, abs=1)


async def test_who_comes_late_to_a_provider_has_no_turns_to_catch_up_on(driver: StoreDriver) -> None:
    limits = Limits(max_in_flight=1)
    await driver.store.providers.admit("p", "first", limits, 0)
    for number in range(40):
        await driver.store.providers.admit("p", call_of(A, number), limits, 0)
    (call,) = await driver.store.providers.release("p", "first", limits, tokens=0, used=0)
    for _ in range(20):
        (call,) = await driver.store.providers.release("p", call, limits, tokens=0, used=0)
    for number in range(10):
        await driver.store.providers.admit("p", call_of(B, number), limits, 0)
    order = []
    for _ in range(12):
        (call,) = await driver.store.providers.release("p", call, limits, tokens=0, used=0)
        order.append(tenant_of(call.split("/")[1]))
    assert Counter(order) == pytest.approx({A: 6, B: 6}, abs=1)


async def test_no_two_tenants_have_one_turn_behind_a_cool_down(driver: StoreDriver) -> None:
    """Who are told the same time would come together, again and again."""
    await driver.store.providers.cool_down("p", 30)
    begun, turns = time.monotonic(), []
    for number in range(60):
        wait = await driver.store.providers.admit("p", call_of(f"{number:06}", 0), Limits(), 0)
        assert isinstance(wait, Wait)
        turns.append(time.monotonic() - begun + wait.seconds)
    turns.sort()
    assert turns[-1] - turns[0] > 2
    assert max(Counter(round(turn, 1) for turn in turns).values()) < 12


async def test_an_operator_sees_who_waits_for_a_turn(driver: StoreDriver) -> None:
    assert await driver.store.waiting_tenants.by_queue() == {"model": [], "tools": []}
    await set_caps(driver, B, max_in_flight=1)
    fleet = Fleet(driver, 2)
    await fleet.submit(B, 2)
    await fleet.submit(A, WINDOW + 3)
    await fleet.submit("", 1)
    await fleet.take()
    waiting = {tenant.tag: tenant for tenant in (await driver.store.waiting_tenants.by_queue())["model"]}
    assert {tag: (tenant.waiting, tenant.in_flight, tenant.at_cap) for tag, tenant in waiting.items()} == {
        A: (3, WINDOW, False),
        B: (1, 1, True),
    }
    assert all(0 <= tenant.first_for < 60 for tenant in waiting.values())
    ready, oldest = (await driver.store.due.depths())["model"]
    assert (ready, 0 <= oldest < 60) == (WINDOW + 4, True)
    await driver.redis.zadd("{p00}:held_back:model", {"run/1": 1})
    assert (await driver.store.due.depths())["model"][1] > 3600
    await driver.redis.zrem("{p00}:held_back:model", "run/1")


async def test_a_step_is_charged_once(driver: StoreDriver, redis: Any) -> None:
    """Without tokens and with one weight a tenant's time is the number of its turns."""
    fleet = Fleet(driver, 1)
    await fleet.submit(A, WINDOW)
    ids = await fleet.submit(A, 5)
    while not fleet.held or fleet.held[0].run_id not in ids:
        if fleet.held:
            await fleet.end_one()
        await fleet.take()
    for _ in range(4):
        await fleet.end_one()
        await fleet.take()
    await fleet.end_one()
    assert await redis.zrange("{p00}:ahead:model", 0, -1, withscores=True) == [(f"@{A}:".encode(), 5.0)]


async def test_what_was_deleted_by_hand_keeps_nobody_waiting(driver: StoreDriver, redis: Any) -> None:
    fleet = Fleet(driver, 4)
    await fleet.submit(A, WINDOW)
    broken, whole = await fleet.submit(B, 2)
    await redis.hdel(keys.undelivered("00", "model"), f"{broken}/1")
    await redis.zadd(keys.turns("00", "model"), {keys.owner(C): -1})
    await fleet.take()
    assert [delivery.run_id for delivery in fleet.queue if tenant_of(delivery.run_id) == B] == [whole]
    await driver.store.runs.cancel(broken)
    assert not await redis.exists(keys.turns("00", "model"), keys.undelivered("00", "model"))
