"""A step that ends whatever model worker takes it fails; those that were lost with it never do (ADR 0016)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from palaver.steps.leases import Delivery, Lease
from palaver.store.redis import keys
from palaver.store.steps.due import DueItem
from tests.contract.store_driver import AGENT, StoreDriver

MOST = 60
"""Losses that the search for one among dozens may take; seven on average."""


async def crash(driver: StoreDriver, redis: Any, worker: str, leases: Iterable[Lease]) -> list[Delivery]:
    """The worker is gone: a sweeper sees its leases run out, in any order. What is sent again at once."""
    lost = [DueItem(lease.run_id, lease.step) for lease in leases]
    random.shuffle(lost)
    settled = await driver.store.due.sweep(lost, worker=worker)
    return [delivery for each in settled for delivery in each.deliveries]


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
    held = {each.run_id: await driver.claim(each.deliveries[0], "w0") for each in runs}
    for crashes in range(1, MOST):
        worker = f"w{crashes}"
        at_once = await crash(driver, redis, f"w{crashes - 1}", held.values())
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
    leases = [await driver.claim(each.deliveries[0], "w0") for each in runs]
    for number in range(6):
        again = await crash(driver, redis, f"w{number}", leases)
        assert len(again) == (8 if number == 0 else 0), "the first loss costs no time, the next ones come apart"
        for _, run_id in await comes_back(driver, redis, [each.run_id for each in runs]):
            (settled,) = await driver.hasten(run_id, "1")
            again += settled.deliveries
        leases = [await driver.claim(each, f"w{number + 1}") for each in again]
        assert len(leases) == 8
    run = await driver.get(runs[0].run_id)
    assert run.attempt == 7
    for lease in leases:
        await driver.finish(lease)


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
    leases = [await driver.claim(each.deliveries[0], "w0") for each in runs]
    again = await crash(driver, redis, "w0", leases)
    await crash(driver, redis, "w1", [await driver.claim(each, "w1") for each in again])
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
