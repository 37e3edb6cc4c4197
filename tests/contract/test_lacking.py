"""Steps that wait for a worker that has what they need: counted by what it is, wherever they go from there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from palaver.steps.leases import Lease
from palaver.steps.verdicts import Postpone
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.redis import fleet_keys, keys
from palaver.vocabulary.lifecycle import WaitReason
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import PAUSE, RESUME, StoreDriver


async def _lacks(driver: StoreDriver, code: str) -> tuple[str, Lease]:
    """A run whose step waits for that."""
    run_id, lease = await driver.begin()
    await driver.store.steps.settle(lease, Postpone(2.0, code, WaitReason.NO_WORKER))
    return run_id, lease


async def _told(driver: StoreDriver) -> dict[str, int]:
    return {each.code: each.steps for each in await driver.store.lacking.read()}


async def test_what_is_lacked_is_counted(driver: StoreDriver) -> None:
    assert await _told(driver) == {}
    codes = ("tool:look_up", "tool:look", "key:A_KEY", "provider:a.b-c", "tool:look_up")
    runs = [(code, (await _lacks(driver, code))[0]) for code in codes]
    found = await driver.store.lacking.read()
    assert [(each.code, each.steps) for each in found] == [
        ("key:A_KEY", 1), ("provider:a.b-c", 1), ("tool:look", 1), ("tool:look_up", 2),
    ]  # fmt: skip
    for each in found:
        assert (each.code, each.run_id) in runs


async def test_no_more_is_told_than_the_limit_says(driver: StoreDriver) -> None:
    for number in range(limit_of("lacks") + 2):
        await _lacks(driver, f"tool:t{number:03}")
    assert list(await _told(driver)) == [f"tool:t{number:03}" for number in range(limit_of("lacks"))]


async def _claimed(driver: StoreDriver, run_id: str, lease: Lease) -> None:
    (settled,) = await driver.hasten(run_id, "1")
    assert await _told(driver) == {}
    await driver.claim(settled.deliveries[0])


async def _promoted(driver: StoreDriver, run_id: str, lease: Lease) -> None:
    assert await driver.store.steps.promote([(lease.conversation_id, run_id, "1")]) != [None]


async def _cancelled(driver: StoreDriver, run_id: str, lease: Lease) -> None:
    await driver.store.runs.cancel(run_id)


async def _paused(driver: StoreDriver, run_id: str, lease: Lease) -> None:
    await driver.act(run_id, PAUSE)


async def _lacking_no_more(driver: StoreDriver, run_id: str, lease: Lease) -> None:
    (settled,) = await driver.hasten(run_id, "1")
    await driver.postpone(await driver.claim(settled.deliveries[0]))


async def _tried(driver: StoreDriver, run_id: str, lease: Lease) -> None:
    (settled,) = await driver.hasten(run_id, "1")
    await driver.retry(await driver.claim(settled.deliveries[0]))


@pytest.mark.parametrize(
    "goes_on", [_claimed, _promoted, _cancelled, _paused, _lacking_no_more, _tried], ids=lambda each: each.__name__[1:]
)
async def test_what_waits_no_more_is_not_counted(
    driver: StoreDriver, goes_on: Callable[[StoreDriver, str, Lease], Awaitable[Any]]
) -> None:
    run_id, lease = await _lacks(driver, "tool:look_up")
    await goes_on(driver, run_id, lease)
    assert await _told(driver) == {}


async def test_what_is_lacked_again_is_counted_once(driver: StoreDriver) -> None:
    run_id, lease = await _lacks(driver, "provider:a")
    (settled,) = await driver.hasten(run_id, "1")
    lease = await driver.claim(settled.deliveries[0])
    await driver.store.steps.settle(lease, Postpone(2.0, "key:A_KEY", WaitReason.NO_WORKER))
    assert await _told(driver) == {"key:A_KEY": 1}


async def test_it_comes_first_for_two_seconds_and_behind_what_can_be_done_after_that(driver: StoreDriver) -> None:
    run_id, _ = await _lacks(driver, "tool:look_up")

    async def lacks_since(moment: int) -> None:
        step = orjson.loads(await driver.redis.hget(keys.steps(run_id), "1"))
        text = orjson.dumps({**step, "lacking_since": moment})
        await driver.redis.hset(keys.steps(run_id), "1", text)

    async def offered() -> Lease:
        (settled,) = await driver.hasten(run_id, "1")
        (delivery,) = settled.deliveries
        queues.append(delivery.queue)
        return await driver.claim(delivery)

    queues: list[str] = []
    # Far ahead: on a slow machine two seconds may be over.
    await lacks_since(int(9e15))
    lease = await offered()
    await driver.store.steps.settle(lease, Postpone(2.0, "tool:look_up", WaitReason.NO_WORKER))
    await lacks_since(1)
    await offered()
    assert queues == ["model.recovered", "model"]


async def test_after_a_pause_it_is_offered_as_if_it_had_just_begun_to_lack_it(driver: StoreDriver) -> None:
    run_id, _ = await _lacks(driver, "tool:look_up")
    await driver.act(run_id, PAUSE)
    await driver.act(run_id, RESUME)
    assert await _told(driver) == {"tool:look_up": 1}
    (settled,) = await driver.hasten(run_id, "1")
    assert [delivery.queue for delivery in settled.deliveries] == ["model.recovered"]


async def test_what_does_not_wait_for_it_any_more_is_taken_out(driver: StoreDriver) -> None:
    """As after a run was deleted by hand."""
    lacking, _ = await _lacks(driver, "tool:a")
    postponed, lease = await driver.begin()
    await driver.postpone(lease)
    leased, _ = await driver.begin()
    stale = ("tool:b " + lacking, "tool:a " + postponed, "tool:a " + leased, "tool:a run_00" + "0" * 26)
    await driver.redis.zadd(keys.lacking("00"), {f"{each}/1": 0 for each in stale})
    looks = [await driver.store.lacking.forget_stale(2) for _ in range(4)]
    assert sum(looks) == len(stale)
    assert max(looks) <= 2
    assert await _told(driver) == {"tool:a": 1}


async def test_no_provider_is_ruled_out_while_an_older_worker_does_not_tell(driver: StoreDriver, redis: Any) -> None:
    fleet = driver.store.fleet
    await fleet.report(WorkerReport("new", ("model",), 0, 1, draining=False, providers=("a",)))
    for queue, known in (("tools", frozenset("a")), ("model", None)):
        await fleet.report(WorkerReport("old", (queue,), 0, 1, draining=False))
        await redis.hdel(fleet_keys.worker("old"), "providers")
        assert await fleet.providers() == known
    await fleet.leave("old")
    assert await fleet.providers() == frozenset("a")


async def test_a_provider_is_known_for_an_hour_after_its_last_worker(driver: StoreDriver, redis: Any) -> None:
    fleet = driver.store.fleet
    assert await fleet.providers() == frozenset()
    report = WorkerReport("w", ("model",), 0, 1, draining=False, providers=("a", "b"), lacks=("key:C_KEY",))
    await fleet.report(report)
    assert await fleet.workers() == [report]
    await fleet.leave("w")
    assert await fleet.providers() == frozenset("ab")
    await redis.zadd("palaver:worker-providers", {"b": 1})
    await fleet.report(WorkerReport("v", ("model",), 0, 1, draining=False, providers=("a",)))
    assert await fleet.providers() == frozenset("a")
