"""A step that ends whatever model worker takes it fails; those that were lost with it never do (ADR 0016)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import orjson
import pytest

from palaver.config.settings import Settings
from palaver.steps.leases import Delivery, Lease
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.redis.connection import now_ms
from palaver.store.steps.due_items import DueItem
from palaver.store.steps.losses import Losses
from tests.contract.store_driver import AGENT, StoreDriver

LEASE_MS = 15_000
AWAY = 30.0
"""Seconds for which a step stays away before its trial."""
MOST = 60
"""Losses that the search for one among dozens may take; seven on average."""


@pytest.fixture(params=[1, 16], ids=["one shard", "many shards"])
async def driver(redis: Any, settings: Settings, request: pytest.FixtureRequest) -> AsyncIterator[StoreDriver]:
    store = Store(redis, settings.model_copy(update={"shards": request.param}))
    yield StoreDriver(store, redis)
    await store.feeds.close()


async def crash(
    driver: StoreDriver, worker: str, leases: Iterable[Lease], *, missed_ms: int | None = None
) -> list[Delivery]:
    """The worker is gone: a sweeper sees its leases run out, in any order, or another worker misses it at that time.
    What is sent again at once."""
    lost = [DueItem(lease.run_id, lease.step) for lease in leases]
    random.shuffle(lost)
    unrenewed_before = None if missed_ms is None else missed_ms + LEASE_MS + 1
    settled = await driver.store.due.sweep(lost, worker=worker, unrenewed_before=unrenewed_before)
    return [delivery for each in settled for delivery in each.deliveries]


async def claimed_at(redis: Any, times: Mapping[str, int]) -> None:
    """The first steps of these runs are as if their worker had claimed them at these times (ms)."""
    for run_id, at_ms in times.items():
        step = orjson.loads(await redis.hget(keys.steps(run_id), "1"))
        step["since"] = at_ms
        await redis.hset(keys.steps(run_id), "1", orjson.dumps(step))


async def wait_of(redis: Any, run_id: str) -> float:
    """Seconds for which the first step of the run stays away."""
    step = orjson.loads(await redis.hget(keys.steps(run_id), "1"))
    return float(step["until"] - step["since"]) / 1000


class SoonPoison:
    """Steps that are claimed together, and one of them ends its worker at once, each time.

    They are as old as the scene says when their worker ends, however long it took to claim them.
    """

    def __init__(self, driver: StoreDriver, redis: Any) -> None:
        self.driver = driver
        self.redis = redis
        self.deaths = 0
        self.runs: list[str] = []
        self.held: dict[str, Lease] = {}
        self.ages: dict[str, int] = {}
        """Of what is held: milliseconds since it was claimed."""

    async def begin(self, count: int) -> str:
        """So many runs, twice lost all together. The run of the poison."""
        submitted = [await self.driver.submit() for _ in range(count)]
        self.runs = [each.run_id for each in submitted]
        await self.claim([await self.driver.first_of(each.run_id) for each in submitted])
        again = await self.die()
        assert len(again) == count, "the first loss costs no time"
        await self.claim(again)
        assert await self.die() == []
        return self.runs[count // 2]

    async def claim(self, deliveries: Iterable[Delivery]) -> None:
        """The worker has these, too, in one moment; whatever it has already outlived its slot."""
        for run_id in self.ages:
            self.ages[run_id] += 2000
        for each in deliveries:
            self.held[each.run_id] = await self.driver.claim(each, f"w{self.deaths}")
            self.ages[each.run_id] = 0

    async def come_back(self, *runs: str) -> None:
        """Time passes until these come back, one after the other."""
        for run_id in runs:
            (settled,) = await self.driver.hasten(run_id, "1")
            await self.claim(settled.deliveries)

    async def die(self) -> list[Delivery]:
        """The worker is gone, and missed at once. What is sent again at once."""
        held, ages = self.held, self.ages
        self.held, self.ages = {}, {}
        self.deaths += 1
        missed_ms = await now_ms(self.redis)
        await claimed_at(self.redis, {run_id: missed_ms - age for run_id, age in ages.items()})
        return await crash(self.driver, f"w{self.deaths - 1}", held.values(), missed_ms=missed_ms)

    async def waiting(self) -> list[str]:
        """Those that are away, in the order in which they come back."""
        return [run_id for _, run_id in await comes_back(self.driver, self.redis, self.runs)]


@pytest.mark.parametrize("count", [2, 20])
async def test_poison_that_kills_soon_is_known_by_its_slot_and_fails_after_its_trial(
    driver: StoreDriver, redis: Any, count: int
) -> None:
    scene = SoonPoison(driver, redis)
    poison = await scene.begin(count)
    slots = await scene.waiting()
    assert [round(await wait_of(redis, run_id), 1) for run_id in slots] == [4.0 + 2.0 * n for n in range(count)]
    before = slots[: slots.index(poison)]
    await scene.come_back(*before, poison)
    assert await scene.die() == [], "none of them comes back at once"
    assert await wait_of(redis, poison) == AWAY
    await scene.come_back(*before, poison)
    await scene.die()
    assert scene.deaths == 4
    for run_id in scene.runs:
        assert (await driver.get(run_id)).status == ("failed" if run_id == poison else "running")


async def test_poison_among_steps_that_ran_before_it_ends_no_more_workers_than_alone(
    driver: StoreDriver, redis: Any
) -> None:
    scene = SoonPoison(driver, redis)
    old = [await driver.submit() for _ in range(20)]
    await scene.claim([await driver.first_of(each.run_id) for each in old])
    new = await driver.submit()
    await scene.claim(new.deliveries)
    await scene.claim(await scene.die())
    scene.runs = [each.run_id for each in (*old, new)]
    await scene.die()
    assert await wait_of(redis, new.run_id) == AWAY
    await scene.come_back(*(each.run_id for each in old), new.run_id)
    await scene.die()
    assert scene.deaths == 3
    for run_id in scene.runs:
        assert (await driver.get(run_id)).status == ("failed" if run_id == new.run_id else "running")


@pytest.mark.parametrize("attempts", [1, 2, 3, 5, 10])
async def test_a_policy_says_how_many_workers_poison_may_end_among_neighbours(
    driver: StoreDriver, redis: Any, attempts: int
) -> None:
    """Only those that it takes to find it come on top."""
    scene = SoonPoison(driver, redis)
    agent = AGENT.model_copy(update={"retry": {"rules": {"worker_lost": {"attempts": attempts}}}})
    runs = [await driver.submit(agent=agent) for _ in range(6)]
    poison = runs[3].run_id
    again = [await driver.first_of(each.run_id) for each in runs]
    while scene.deaths < 12 and (await driver.get(poison)).status != "failed":
        scene.runs = [each.run_id for each in runs]
        await scene.claim(again)
        if poison not in scene.held:
            slots = await scene.waiting()
            await scene.come_back(*slots[: slots.index(poison) + 1])
        again = await scene.die()
    assert scene.deaths == {1: 3, 2: 4, 3: 4}.get(attempts, attempts)


async def test_a_worker_that_ends_without_the_suspect_clears_it(driver: StoreDriver, redis: Any) -> None:
    """Four kills from outside, of which the last one meets the same step again: it stays."""
    scene = SoonPoison(driver, redis)
    innocent = await scene.begin(4)
    others = [run_id for run_id in await scene.waiting() if run_id != innocent]
    await scene.come_back(innocent)
    await scene.die()
    await scene.come_back(others[0])
    await scene.die()
    await scene.come_back(innocent)
    await scene.die()
    assert scene.deaths == 5
    for run_id in scene.runs:
        assert (await driver.get(run_id)).status == "running"


async def test_a_step_that_outlives_its_claim_is_no_suspect(driver: StoreDriver, redis: Any) -> None:
    scene = SoonPoison(driver, redis)
    innocent = await scene.begin(4)
    others = [run_id for run_id in await scene.waiting() if run_id != innocent]
    await scene.come_back(innocent)
    await scene.die()
    await scene.come_back(innocent, *others)
    await scene.die()
    assert await wait_of(redis, innocent) != AWAY
    await scene.come_back(innocent)
    await scene.die()
    assert (await driver.get(innocent)).status == "running"


async def comes_back(driver: StoreDriver, redis: Any, runs: Iterable[str]) -> list[tuple[float, str]]:
    """When those that were set apart come back, and their runs; the first one first."""
    found = []
    for run_id in runs:
        text = await redis.hget(keys.steps(run_id), "1")
        step = orjson.loads(text) if text else {}
        if step.get("state") == "later":
            found.append((step["until"], run_id))
    return sorted(found)


@pytest.mark.slow
async def test_the_poison_among_many_long_steps_is_found(driver: StoreDriver, redis: Any) -> None:
    """All on one worker, none of the others ever ends, and all that come back before the poison are lost with it."""
    runs = [(await driver.submit()) for _ in range(30)]
    poison = runs[17].run_id
    held = {each.run_id: await driver.claim(await driver.first_of(each.run_id), "w0") for each in runs}
    for crashes in range(1, MOST):
        worker = f"w{crashes}"
        at_once = await crash(driver, f"w{crashes - 1}", held.values())
        held = {each.run_id: await driver.claim(each, worker) for each in at_once}
        if (await driver.get(poison)).status == "failed":
            break
        for _, run_id in await comes_back(driver, redis, [each.run_id for each in runs]):
            if poison in held:
                break
            (settled,) = await driver.hasten(run_id, "1")
            (delivery,) = settled.deliveries
            assert delivery.queue == "model.recovered"
            held[run_id] = await driver.claim(delivery, worker)
    failed = await driver.get(poison)
    assert failed.error is not None
    assert failed.error["class"] == "worker_lost"
    assert crashes <= 30
    for each in runs:
        assert each.run_id == poison or (await driver.get(each.run_id)).status == "running"


async def test_those_that_are_lost_together_are_not_blamed_however_often(driver: StoreDriver, redis: Any) -> None:
    runs = [await driver.submit() for _ in range(8)]
    leases = [await driver.claim(await driver.first_of(each.run_id), "w0") for each in runs]
    for number in range(6):
        again = await crash(driver, f"w{number}", leases)
        assert len(again) == (8 if number == 0 else 0), "the first loss costs no time, the next ones come apart"
        for _, run_id in await comes_back(driver, redis, [each.run_id for each in runs]):
            (settled,) = await driver.hasten(run_id, "1")
            again += settled.deliveries
        leases = [await driver.claim(each, f"w{number + 1}") for each in again]
        await claimed_at(redis, dict.fromkeys([lease.run_id for lease in leases], await now_ms(redis)))
        assert len(leases) == 8
    run = await driver.get(runs[0].run_id)
    assert run.attempt == 7
    for lease in leases:
        await driver.finish(lease)


async def test_so_are_calls_of_tools_that_share_a_worker(driver: StoreDriver, redis: Any) -> None:
    """On a loop, that is: a child has one, which is to blame for each of its deaths."""
    turns = [await driver.turn("a", idempotent=["a"]) for _ in range(5)]
    deliveries = [delivery for _, found in turns for delivery in found]
    for number in range(6):
        leases = []
        # Few are delivered at once: a claim lets the next one go.
        while deliveries:
            leases.append(await driver.claim(deliveries.pop(0), f"w{number}"))
            deliveries += leases[-1].deliveries
        assert len(leases) == 5
        deliveries = [*await crash(driver, f"w{number}", leases)]
        at_once = {delivery.run_id for delivery in deliveries}
        for run_id, _ in turns:
            if run_id not in at_once:
                (settled,) = await driver.hasten(run_id, "1/a")
                deliveries += settled.deliveries
    for run_id, _ in turns:
        assert (await driver.get(run_id)).status == "running"


async def test_a_call_alone_on_its_worker_is_to_blame_at_once(driver: StoreDriver, redis: Any) -> None:
    run_id, deliveries = await driver.turn("a", idempotent=["a"])
    for number in range(3):
        lease = await driver.claim(deliveries[0], f"w{number}")
        deliveries = await crash(driver, f"w{number}", [lease])
    assert (await driver.get(run_id)).status == "failed"


@pytest.mark.parametrize(
    ("retry", "losses"),
    [
        ({"rules": {"worker_lost": {"attempts": 1}}}, 1),
        ({"rules": {"worker_lost": {"attempts": 5}, "timeout": {"attempts": 2}}}, 5),
        ({"rules": {"timeout": {"attempts": 2}}}, 3),
    ],
    ids=["fewer", "more", "not named"],
)
async def test_a_policy_says_how_many_workers_a_model_call_may_end(
    driver: StoreDriver, retry: dict[str, Any], losses: int
) -> None:
    run_id, lease = await driver.begin(agent=AGENT.model_copy(update={"retry": retry}))
    for _ in range(losses - 1):
        (lost,) = await driver.lose(lease)
        lease = await driver.claim(lost.deliveries[0])
    (lost,) = await driver.lose(lease)
    run = await driver.get(run_id)
    assert (lost.status, run.attempt) == ("failed", losses)
    assert run.error is not None
    assert f"lost its worker {losses} time" in run.error["message"]


async def test_a_step_that_comes_back_later_says_so(driver: StoreDriver, redis: Any) -> None:
    runs = [await driver.submit() for _ in range(2)]
    leases = [await driver.claim(await driver.first_of(each.run_id), "w0") for each in runs]
    again = await crash(driver, "w0", leases)
    await crash(driver, "w1", [await driver.claim(each, "w1") for each in again])
    run = await driver.get(runs[0].run_id)
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.error_class) == ("backoff", "worker_lost")


async def test_steps_of_other_workers_are_not_company(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.claim((await driver.submit()).deliveries[0], "w2")
    for _ in range(2):
        (lost,) = await driver.lose(lease)
        lease = await driver.claim(lost.deliveries[0])
    await driver.lose(lease)
    assert (await driver.get(run_id)).status == "failed"


async def test_a_death_is_judged_without_a_look_at_what_waits_for_long(
    driver: StoreDriver, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, held = [await driver.submit() for _ in range(5)], [await driver.submit() for _ in range(3)]
    for each in waiting:
        await driver.retry(await driver.claim(each.deliveries[0]), 300.0)
    leases = [await driver.claim(each.deliveries[0]) for each in held]
    looked_at: set[str] = set()
    read = Losses._read

    async def noted(self: Losses, items: Iterable[DueItem]) -> Any:
        found = await read(self, items)
        looked_at.update(item.run_id for item, _ in found)
        return found

    monkeypatch.setattr(Losses, "_read", noted)
    await crash(driver, "w1", leases, missed_ms=await now_ms(redis))
    assert looked_at == ({each.run_id for each in held} if len(driver.store.due.shards) > 1 else set())


@pytest.mark.parametrize(("seconds", "looks"), [(59.0, 1), (61.0, 2)])
async def test_a_judgement_is_kept_for_as_long_as_it_says(
    driver: StoreDriver, redis: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, looks: int
) -> None:
    """Of two that a worker seemed to lose, the second one's lease ends later: of the same death, or of another one."""
    losses, judged, now = driver.store.due._losses, list[str](), [0.0]
    judge = losses._judge

    async def noted(worker: str, *about: Any) -> None:
        judged.append(worker)
        await judge(worker, *about)

    monkeypatch.setattr(losses, "_judge", noted)
    monkeypatch.setattr(losses, "_clock", lambda: now[0])
    one, another = [await driver.claim((await driver.submit()).deliveries[0]) for _ in range(2)]
    await crash(driver, "w1", [one], missed_ms=await now_ms(redis))
    now[0] = seconds
    await crash(driver, "w1", [another], missed_ms=await now_ms(redis))
    assert judged == ["w1"] * (looks if len(driver.store.due.shards) > 1 else 0)
