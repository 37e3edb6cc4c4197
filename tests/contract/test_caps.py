"""The caps of a tenant: what is kept of them, and how they hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.errors import NoRoom
from palaver.schemas.tenants import Caps, CapsChange
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from tests.contract.store_driver import StoreDriver

TAG = "0000m1"
ONE = Reach(TAG)


async def test_each_tenant_has_its_own_caps_and_none_before_they_are_set(store: Store, redis: Any) -> None:
    assert await store.caps.get(TAG) == await store.caps.get("") == Caps()
    changed = await store.caps.change(TAG, CapsChange(weight=3, usd_per_day=0.1, max_queued=7))
    assert changed == await store.caps.get(TAG) == Caps(weight=3, usd_per_day=0.1, max_queued=7)
    assert await store.caps.change("", CapsChange(max_in_flight=2)) == Caps(max_in_flight=2)
    assert await store.caps.get(TAG) == changed
    assert await redis.hgetall(keys.caps("00")) == {
        b"@0000m1:weight": b"3",
        b"@0000m1:usd_per_day": b"100000000",
        b"@0000m1:max_queued": b"7",
        b"max_in_flight": b"2",
    }


async def test_what_a_change_leaves_out_stays_and_null_takes_a_cap_away(store: Store) -> None:
    await store.caps.change(TAG, CapsChange(weight=3, max_queued=7, usd_per_month=12.5))
    changed = await store.caps.change(TAG, CapsChange(weight=None, max_queued=8, usd_per_day=1))
    assert changed == Caps(max_queued=8, usd_per_month=12.5, usd_per_day=1)
    assert await store.caps.change(TAG, CapsChange()) == changed


async def _refused(driver: StoreDriver, **more: Any) -> None:
    with pytest.raises(NoRoom) as refusal:
        await driver.submit(**more)
    assert refusal.value.code == "tenant_queue_full"


async def test_a_tenant_has_no_more_runs_that_have_not_begun_than_its_cap(store: Store, driver: StoreDriver) -> None:
    await store.caps.change(TAG, CapsChange(max_queued=2))
    with within(ONE):
        first = await driver.submit()
        await driver.submit(start_after=datetime.now(UTC) + timedelta(hours=1))
        await _refused(driver)
        await _refused(driver, start_after=datetime.now(UTC) + timedelta(hours=1))
        await driver.claim(first.deliveries[0])
        conversation_id = first.deliveries[0].conversation_id
        behind = await driver.submit(conversation_id=conversation_id, on_conflict="enqueue")
        await _refused(driver, conversation_id=conversation_id, on_conflict="enqueue")
        # It brings no run.
        steered = await driver.submit(conversation_id=conversation_id, on_conflict="steer")
        assert steered.run_id == first.run_id
        await store.caps.change(TAG, CapsChange(max_queued=3))
        await driver.submit()
        await store.runs.cancel(behind.run_id)
        await driver.submit()
        await _refused(driver)
    for _ in range(4):
        await driver.submit()


async def test_the_default_tenant_has_a_cap_of_its_own(store: Store, driver: StoreDriver) -> None:
    await store.caps.change("", CapsChange(max_queued=1))
    with within(ONE):
        await driver.submit()
        await driver.submit()
    key = {"idempotency_key": "k"}
    first = await driver.submit(**key)
    await _refused(driver)
    # What was taken on before is still found.
    assert (await driver.submit(**key)).run_id == first.run_id
    await store.caps.change("", CapsChange(max_queued=None))
    await driver.submit()
