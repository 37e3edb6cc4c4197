"""What waits in a queue of tools is little: a place may be taken for minutes, and turns are to decide (ADR 0094)."""

from __future__ import annotations

from collections import deque

import pytest

from palaver.steps.leases import Delivery, Lease
from palaver.store.redis.reach import Reach, within
from palaver.vocabulary.ids import tenant_of
from palaver.vocabulary.step_kinds import AT_ONCE, TOOL, WINDOW
from tests.contract.store_driver import StoreDriver

A, B = "0000m1", "0000m2"
CALLS = [f"c{number}" for number in range(30)]


class ToolFleet:
    """Tools workers with so many places, whose calls take longer than anything else does here."""

    def __init__(self, driver: StoreDriver, places: int) -> None:
        self.driver = driver
        self.places = places
        self.queues: tuple[deque[Delivery], deque[Delivery]] = deque(), deque()
        """What is consumed first, and the rest."""
        self.held: deque[Lease] = deque()
        self.begun: list[str] = []
        """The tenant of each call, in the order in which they began."""

    async def ask(self, tenant: str, *calls: str) -> None:
        """A model of a tenant asks for calls; they begin as far as there are places."""
        with within(Reach(tenant)):
            _, deliveries = await self.driver.turn(*calls)
        await self._take(deliveries)

    async def end_one(self) -> None:
        """End the call that has gone on for longest, and begin what is next."""
        await self._take((await self.driver.answer(self.held.popleft())).deliveries)

    async def until(self, tenant: str) -> list[str]:
        """End calls until one of a tenant begins: whose began before it, from now on."""
        before = len(self.begun)
        while tenant not in self.begun[before:]:
            await self.end_one()
        return self.begun[before : self.begun.index(tenant, before)]

    async def _take(self, deliveries: list[Delivery] | tuple[Delivery, ...]) -> None:
        first, rest = self.queues
        for delivery in deliveries:
            if delivery.queue.startswith(TOOL.queue):
                (first if delivery.queue.endswith(".recovered") else rest).append(delivery)
        while len(self.held) < self.places and (first or rest):
            lease = await self.driver.claim((first or rest).popleft())
            self.held.append(lease)
            self.begun.append(tenant_of(lease.run_id))
            await self._take(lease.deliveries)


@pytest.mark.parametrize("places", [4, 8])
async def test_a_call_waits_for_one_of_anothers_thirty(driver: StoreDriver, places: int) -> None:
    fleet = ToolFleet(driver, places)
    await fleet.ask(A, *CALLS)
    assert fleet.begun == [A] * places
    waiting = await driver.store.due.delivered(TOOL.queue)
    assert 1 <= waiting <= 1 + places // 8, "the others wait in the store"
    await fleet.ask(B, "c1")
    assert await fleet.until(B) == [A] * waiting


async def test_calls_that_come_one_by_one_wait_for_their_turn_as_well(driver: StoreDriver) -> None:
    fleet = ToolFleet(driver, 2)
    for call in CALLS[:12]:
        await fleet.ask(A, call)
    await fleet.ask(B, "c1", "c2")
    assert len(await fleet.until(B)) <= AT_ONCE + 1
    assert len(await fleet.until(B)) <= 1, "then they take turns"


async def test_a_fleet_with_many_places_is_filled_by_several_at_a_time(driver: StoreDriver) -> None:
    """One after the other would be 200 claims a second where each takes 5 ms."""
    fleet = ToolFleet(driver, 90)
    for _ in range(4):
        await fleet.ask(A, *CALLS)
    assert len(fleet.held) == 90
    waiting = await driver.store.due.delivered(TOOL.queue)
    assert 1 < waiting <= WINDOW


async def test_a_worker_that_is_slow_to_begin_keeps_no_place_of_others_free(driver: StoreDriver) -> None:
    """It took what there was, and is yet to start a process for it: a sweeper sends that again, and one more."""
    _, deliveries = await driver.turn(*CALLS)
    assert len(deliveries) == AT_ONCE
    for expected in (2 * AT_ONCE, WINDOW, WINDOW):
        unclaimed = await driver.store.due.unclaimed(TOOL.queue, -60, WINDOW)
        await driver.store.due.sweep(unclaimed, unclaimed_after=-60)
        assert await driver.store.due.delivered(TOOL.queue) == expected
