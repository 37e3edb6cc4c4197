"""Caps on requests and tokens a minute: a call is charged before it begins, and who waits has a turn."""

from __future__ import annotations

from typing import Any

import pytest
from fakeredis import FakeServer

from palaver.config.settings import Settings
from palaver.schemas.models import Message, Usage
from palaver.schemas.tenants import CapsChange
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Finish, HandBack, Postpone
from palaver.store import Store
from palaver.store.redis.reach import Reach, within
from palaver.store.scripting.contracts.providers import Wait
from palaver.vocabulary.lifecycle import StopReason, WaitReason
from tests.contract.clock import Clock
from tests.contract.invariants import check_whole
from tests.contract.store_driver import StoreDriver
from tests.contract.witness import Moves, WitnessedFake

TAG = "0000m1"


class Tenant:
    """A tenant whose calls ask its caps, by a clock that stands."""

    def __init__(self, clock: Clock, **caps: int) -> None:
        self.clock = clock
        self.redis: Any = WitnessedFake(server=FakeServer())
        self.redis.moves = Moves()
        self.store = Store(self.redis, Settings(redis_url="redis://127.0.0.1:1/0"))
        self.driver = StoreDriver(self.store, self.redis)
        self.caps = caps

    async def leases(self, count: int) -> list[Lease]:
        await self.store.caps.change(TAG, CapsChange.model_validate(self.caps))
        with within(Reach(TAG)):
            return [(await self.driver.begin())[1] for _ in range(count)]

    async def reserve(self, lease: Lease, tokens: int = 0, call: int = 1) -> Wait | None:
        return await self.store.caps.reserve(lease, call, spent=0.0, least=0.0, most=0.0, tokens=tokens)

    async def end(self, lease: Lease, tokens: int) -> None:
        usage = Usage(input_tokens=tokens, model_calls=1)
        verdict = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=usage)
        await self.store.steps.settle(lease, verdict)

    async def waits(self, lease: Lease, tokens: int = 0) -> tuple[str, float]:
        """Why it waits, and how long."""
        wait = await self.reserve(lease, tokens)
        assert wait is not None
        assert wait.of_tenant
        await self.store.steps.settle(lease, Postpone(wait.seconds, wait.code, WaitReason.TENANT_LIMIT))
        return wait.code, wait.seconds

    async def allowed(self) -> set[str]:
        """The runs that may begin by now."""
        return {run_id for _, run_id, _ in await self.store.caps.allowed()}


async def test_so_many_requests_begin_in_a_minute(clock: Clock) -> None:
    tenant = Tenant(clock, requests_per_minute=60)
    leases = await tenant.leases(9)
    assert (leases[0].rate_capped, leases[0].money_capped) == (True, False)
    for lease in leases[:5]:
        assert await tenant.reserve(lease) is None
    # Each of the others has its own turn.
    waits = [await tenant.waits(lease) for lease in leases[5:8]]
    assert waits == [("requests_per_minute", seconds) for seconds in (1.0, 2.0, 3.0)]
    waiting = (await tenant.driver.get(leases[5].run_id)).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.code) == (WaitReason.TENANT_LIMIT, "requests_per_minute")
    clock.now += 1
    assert len(await tenant.allowed()) == 1
    clock.now += 1
    assert len(await tenant.allowed()) == 2
    clock.now += 60
    assert await tenant.reserve(leases[8]) is None
    await check_whole(tenant.redis)


async def test_tokens_are_charged_as_they_may_be_and_then_as_they_are(clock: Clock) -> None:
    tenant = Tenant(clock, tokens_per_minute=6000)
    first, second, third = await tenant.leases(3)
    assert await tenant.reserve(first, tokens=500) is None
    assert await tenant.waits(second, tokens=100) == ("tokens_per_minute", 1.0)
    await tenant.end(first, tokens=200)
    # It took two seconds' worth, and not five.
    assert await tenant.reserve(third, tokens=300) is None
    await check_whole(tenant.redis)


async def test_a_call_that_takes_more_than_it_was_charged_is_charged_with_it(clock: Clock) -> None:
    tenant = Tenant(clock, tokens_per_minute=6000)
    first, second = await tenant.leases(2)
    assert await tenant.reserve(first, tokens=10) is None
    await tenant.end(first, tokens=2000)
    assert await tenant.waits(second) == ("tokens_per_minute", 15.0)


async def test_a_call_that_was_not_made_is_charged_with_no_tokens(clock: Clock) -> None:
    tenant = Tenant(clock, tokens_per_minute=6000)
    first, second = await tenant.leases(2)
    assert await tenant.reserve(first, tokens=500) is None
    await tenant.store.steps.settle(first, HandBack(begun=False))
    assert await tenant.reserve(second, tokens=500) is None


async def test_a_call_that_is_larger_than_the_rate_begins_by_itself(clock: Clock) -> None:
    tenant = Tenant(clock, tokens_per_minute=600)
    first, second = await tenant.leases(2)
    assert await tenant.reserve(first, tokens=6000) is None
    assert await tenant.waits(second, tokens=6000) == ("tokens_per_minute", 600.0)


async def test_a_lost_answer_charges_nothing_twice(clock: Clock) -> None:
    tenant = Tenant(clock, requests_per_minute=60, tokens_per_minute=6000)
    lease, other = await tenant.leases(2)
    # A script that the server does not have is not run twice.
    assert await tenant.reserve(other) is None
    with tenant.driver.answers_get_lost():
        assert await tenant.reserve(lease, tokens=100) is None
        assert await tenant.reserve(lease, tokens=100, call=2) is None
        await tenant.end(lease, tokens=100)
    used = await tenant.redis.hmget("{p00}:meters", f"@{TAG}:requests", f"@{TAG}:tokens")
    assert [float(value) / 1000 - clock.now for value in used] == [3.0, 1.0]
    await check_whole(tenant.redis)


async def test_the_cap_that_holds_a_call_up_longest_is_named(clock: Clock) -> None:
    tenant = Tenant(clock, requests_per_minute=1, tokens_per_minute=600)
    first, second = await tenant.leases(2)
    assert await tenant.reserve(first, tokens=10) is None
    wait = await tenant.reserve(second, tokens=10)
    assert wait is not None
    assert (wait.code, wait.seconds) == ("requests_per_minute", 60.0)
    await tenant.store.caps.change(TAG, CapsChange(usd_per_day=0.1))
    money = await tenant.store.caps.reserve(second, 1, spent=0.0, least=0.2, most=0.3, tokens=10)
    assert money is not None
    assert money.code == "usd_per_day"


@pytest.mark.parametrize("raised", [True, False])
async def test_a_rate_that_is_changed_lets_begin_what_waits(clock: Clock, raised: bool) -> None:
    tenant = Tenant(clock, requests_per_minute=1)
    leases = await tenant.leases(4)
    runs = {lease.run_id for lease in leases[1:]}
    assert await tenant.reserve(leases[0]) is None
    assert [(await tenant.waits(lease))[1] for lease in leases[1:]] == [60.0, 120.0, 180.0]
    await tenant.store.caps.change(TAG, CapsChange(requests_per_minute=600 if raised else None))
    assert await tenant.allowed() == (set() if raised else runs)
    clock.now += 60
    assert await tenant.allowed() == runs
