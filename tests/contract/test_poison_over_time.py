"""Poison ends few workers before its run fails, and kills from outside fail nobody: played on the store's clock
(ADR 0016)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from fakeredis import FakeServer

from palaver.config.settings import Settings
from palaver.steps.leases import Delivery, Lease
from palaver.store import Store
from palaver.store.steps.due_items import DueItem
from tests.contract.clock import Clock
from tests.contract.invariants import check_whole
from tests.contract.store_driver import StoreDriver
from tests.contract.witness import Moves, WitnessedFake

LOOK: Final = 0.5
"""Seconds after its death in which a worker is missed at the latest; a second later its leases end."""
TICK: Final = 0.2
SECOND: Final = 1.0
"""As long passes at once where nobody is about to die: workers look as often for what is due."""
ONE, MANY = "one shard", "many shards"
SHARDS: Final = {ONE: 1, MANY: 16}
LONG: Final = (
    (20, 0.0, 0.4, 4),
    (20, 0.0, 3.0, 4),
    (20, 60.0, 0.4, 3),
    (30, 0.0, 0.4, 4),
    (20, 0.0, 12.0, 6),
    (100, 0.0, 3.0, 6),
)
"""Of poison among many: on one shard two in `make test` and all of them in the long tier, on many one, and the others
among the chaos."""
_FEWEST_AND_MOST: Final = {LONG[2], LONG[4]}
"""How many workers die, at most."""


class Workers:
    """One worker at a time, and the next one as soon as a supervisor started it; nothing that it has ever ends."""

    def __init__(self, driver: StoreDriver, clock: Clock, restart: float) -> None:
        self.driver = driver
        self.restart = restart
        self.deaths = 0
        self.held: dict[str, tuple[Lease, float]] = {}
        self._clock = clock
        self._sent: list[Delivery] = []
        self._up_from = clock.now
        self._renewed = clock.now
        self._gone: list[tuple[float, str, int]] = []

    async def submit(self, count: int) -> list[str]:
        """So many runs, in the order in which they are claimed."""
        submitted = [await self.driver.submit() for _ in range(count)]
        self._sent += [delivery for each in submitted for delivery in each.deliveries]
        return [each.run_id for each in submitted]

    def die(self) -> None:
        """The worker is gone; that is seen within two looks and a second."""
        missed = self._clock.now + random.uniform(0.0, LOOK)
        self._gone.append((missed + 1.0, self._name, int(missed * 1000) + 15_000))
        self.held = {}
        self.deaths += 1
        self._up_from = self._clock.now + self.restart

    async def work_until(self, moment: float) -> None:
        """Nobody dies until then."""
        while self._clock.now < moment:
            await self.tick(moment)

    async def tick(self, until: float) -> None:
        """A moment passes, or a second, if that long nothing is to happen."""
        self._clock.now += min(SECOND, max(TICK, until - self._clock.now))
        now = self._clock.now
        for gone in [each for each in self._gone if each[0] <= now]:
            self._gone.remove(gone)
            _, name, unrenewed_before = gone
            lost = await self.driver.store.due.held(name, unrenewed_before)
            for begin in range(0, len(lost), 200):
                await self._sweep(lost[begin : begin + 200], worker=name, unrenewed_before=unrenewed_before)
        items, _ = await self.driver.store.due.due()
        await self._sweep(items)
        if now >= self._up_from:
            if now >= self._renewed + 5.0 and self.held:
                self._renewed = now
                await self.driver.store.steps.renew([lease for lease, _ in self.held.values()])
            while self._sent:
                lease = await self.driver.try_claim(self._sent.pop(0), self._name)
                if isinstance(lease, Lease):
                    self._sent += lease.deliveries
                    self.held[lease.run_id] = (lease, now)

    @property
    def _name(self) -> str:
        return f"w{self.deaths}"

    async def _sweep(self, items: list[DueItem], **more: Any) -> None:
        for settled in await self.driver.store.due.sweep(items, **more):
            self._sent += settled.deliveries


@pytest.fixture
async def driver(settings: Settings, clock: Clock, request: pytest.FixtureRequest) -> AsyncIterator[StoreDriver]:
    redis: Any = WitnessedFake(server=FakeServer())
    redis.moves = Moves()
    store = Store(redis, settings.model_copy(update={"shards": SHARDS[request.param]}))
    yield StoreDriver(store, redis)
    await check_whole(redis)
    await store.feeds.close()
    await redis.aclose()


async def _status(driver: StoreDriver, run_id: str) -> str:
    return (await driver.get(run_id)).status


@pytest.mark.parametrize("restart", [0.0, 3.0], ids=["in a fleet", "the only worker"])
@pytest.mark.parametrize(
    ("driver", "suspects", "running_for", "fatal_after", "most"),
    [
        *((shards, 1, 0.0, 0.4, 3) for shards in SHARDS),
        (ONE, 5, 0.0, 0.4, 4),
        pytest.param(MANY, 5, 0.0, 0.4, 4, marks=pytest.mark.slow),
        *(
            pytest.param(ONE, *many, marks=pytest.mark.slow if many in _FEWEST_AND_MOST else pytest.mark.long)
            for many in LONG
        ),
        pytest.param(MANY, *LONG[1], marks=pytest.mark.slow),
        *(pytest.param(MANY, *many, marks=pytest.mark.chaos) for many in LONG if many != LONG[1]),
        *(pytest.param(shards, 500, 0.0, 0.4, 6, marks=pytest.mark.chaos) for shards in SHARDS),
    ],
    indirect=["driver"],
)
async def test_poison_ends_few_workers(
    driver: StoreDriver,
    clock: Clock,
    suspects: int,
    running_for: float,
    fatal_after: float,
    most: int,
    restart: float,
) -> None:
    """So many steps are begun, the last one so much later than the others, which kills its worker so long after each
    claim."""
    workers = Workers(driver, clock, restart)
    runs = await workers.submit(suspects - 1)
    await workers.work_until(clock.now + running_for)
    (poison,) = await workers.submit(1)
    until = clock.now + 400.0
    while clock.now < until and await _status(driver, poison) != "failed":
        fatal = workers.held[poison][1] + fatal_after if poison in workers.held else clock.now
        await workers.tick(fatal)
        if poison in workers.held and clock.now >= workers.held[poison][1] + fatal_after:
            workers.die()
    assert await _status(driver, poison) == "failed"
    assert workers.deaths <= most
    for run_id in runs:
        assert await _status(driver, run_id) == "running"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "kills", "shortest"),
    [
        *((shards, 4, 0.3) for shards in SHARDS),
        *((ONE, *more) for more in ((3, 0.3), (6, 8.0))),
        *(pytest.param(MANY, *more, marks=pytest.mark.chaos) for more in ((3, 0.3), (6, 8.0))),
    ],
    indirect=["driver"],
)
@pytest.mark.parametrize("seed", range(2))
async def test_kills_from_outside_fail_nobody(
    driver: StoreDriver, clock: Clock, seed: int, kills: int, shortest: float
) -> None:
    random.seed(seed)
    chance = random.Random(seed)
    workers = Workers(driver, clock, restart=chance.choice((0.0, 3.0)))
    runs = await workers.submit(chance.choice((2, 8, 20)))
    for _ in range(kills):
        until = clock.now + chance.uniform(shortest, chance.choice((4.0, 60.0)) + shortest)
        while clock.now < until or not workers.held:
            await workers.tick(until)
        workers.die()
    await workers.work_until(clock.now + 75.0)
    assert [await _status(driver, run_id) for run_id in runs] == ["running"] * len(runs)
    assert len(workers.held) == len(runs), "all of them are worked on again"
