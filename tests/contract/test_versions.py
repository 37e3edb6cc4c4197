"""Code of two versions on one store, as in a rolling deployment or after a rollback."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.errors import NewerVersion, StaleLease
from palaver.schemas.models import Retry
from palaver.steps.leases import Stray
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.runs.runs import Submitted
from palaver.store.scripting import scripts
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.lifecycle import RunStatus
from tests.contract.store_driver import StoreDriver


@pytest.fixture
def newer(redis: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> StoreDriver:
    """Workers and clients of the next version."""
    with monkeypatch.context() as patch:
        patch.setattr(scripts, "VERSION", scripts.VERSION + 1)
        store = Store(redis, settings)
    return StoreDriver(store, redis)


async def test_an_older_worker_leaves_a_step_to_a_newer_one(driver: StoreDriver, newer: StoreDriver) -> None:
    submitted = await newer.submit()
    (delivery,) = submitted.deliveries
    with pytest.raises(NewerVersion):
        await driver.try_claim(delivery)
    await newer.finish(await newer.claim(delivery))
    assert (await newer.get(submitted.run_id)).status is RunStatus.COMPLETED


async def test_a_newer_worker_goes_on_where_an_older_one_was(driver: StoreDriver, newer: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    (delivery,) = await driver.ask(lease, "c1")
    (following,) = (await newer.answer(await newer.claim(delivery))).deliveries
    with pytest.raises(NewerVersion):
        await driver.try_claim(following)
    await newer.finish(await newer.claim(following))
    assert (await driver.get(run_id)).status is RunStatus.COMPLETED


async def test_an_older_worker_lets_go_once_newer_code_has_acted(
    driver: StoreDriver, newer: StoreDriver, redis: Any
) -> None:
    run_id, lease = await driver.begin()
    await newer.store.runs.cancel(run_id)
    before = await redis.hgetall(keys.run(run_id))
    for write in (driver.finish(lease), driver.hand_back(lease)):
        with pytest.raises(StaleLease):
            await write
    assert await redis.hgetall(keys.run(run_id)) == before
    await newer.lose(lease)
    assert (await newer.get(run_id)).status is RunStatus.CANCELLED


async def test_an_older_api_changes_nothing(driver: StoreDriver, newer: StoreDriver, redis: Any) -> None:
    submitted = await newer.submit()
    conversation_id = (await newer.get(submitted.run_id)).conversation_id
    before = await redis.hgetall(keys.run(submitted.run_id))
    with pytest.raises(NewerVersion):
        await driver.store.runs.cancel(submitted.run_id)
    with pytest.raises(NewerVersion):
        await driver.submit(conversation_id=conversation_id)
    assert await redis.hgetall(keys.run(submitted.run_id)) == before
    await newer.finish(await newer.claim(submitted.deliveries[0]))


async def test_an_older_api_does_to_the_others_what_is_asked_of_many(driver: StoreDriver, newer: StoreDriver) -> None:
    failed = []
    for each in (driver, newer, driver):
        run_id, lease = await each.begin()
        await each.give_up(lease)
        failed.append(await each.get(run_id))
    first, left, last = await driver.store.bulk.retry([(run, Retry()) for run in failed])
    assert isinstance(first, Submitted)
    assert isinstance(left, NewerVersion)
    assert isinstance(last, Submitted)
    made = [await driver.get(each.run_id) for each in (first, last)]
    made.insert(1, await newer.get((await newer.submit()).run_id))
    outcomes = await driver.store.bulk.cancel(made)
    assert [getattr(each, "status", type(each)) for each in outcomes] == ["cancelled", NewerVersion, "cancelled"]
    await newer.store.runs.cancel(made[1].id)


async def test_an_older_sweeper_ends_no_lease(driver: StoreDriver, newer: StoreDriver, redis: Any) -> None:
    run_id, lease = await newer.begin()
    await redis.zadd(keys.due("00"), {f"{run_id}/1": 1})
    assert await driver.sweep(run_id, "1") == []
    assert (await redis.zscore(keys.due("00"), f"{run_id}/1")) > 1, "it stands before all others for ever"
    assert await driver.sweep(run_id, "1", worker="w1") == []
    await newer.finish(lease)


async def test_an_older_sweeper_passes_a_lost_delivery_on(driver: StoreDriver, newer: StoreDriver, redis: Any) -> None:
    """It may be the only one there is, and go on until newer workers come."""
    submitted = await newer.submit()
    await redis.zadd(keys.ready("00", "model"), {f"{submitted.run_id}/1": 1})
    (found,) = await driver.store.due.unclaimed("model", 1.0, 16)
    assert found == DueItem(submitted.run_id, "1", "model")
    ((delivery,),) = [settled.deliveries for settled in await driver.store.due.sweep([found])]
    assert (delivery.queue, delivery.step) == ("model.recovered", "1")
    assert await driver.store.due.unclaimed("model", 1.0, 16) == []
    await newer.finish(await newer.claim(delivery))


async def test_conversations_that_newer_code_did_not_touch_go_on(driver: StoreDriver, newer: StoreDriver) -> None:
    await newer.finish((await newer.begin())[1])
    _, lease = await driver.begin()
    await driver.finish(lease)
    assert not isinstance(await driver.try_claim((await driver.submit()).deliveries[0]), Stray)
