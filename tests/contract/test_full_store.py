"""A Redis at its ``maxmemory``: what ends runs, deletes them or keeps what workers have goes on, and nothing grows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError, ResponseError

from palaver.steps.leases import Renewal
from palaver.store import Store
from tests.contract.store_driver import StoreDriver

pytestmark = pytest.mark.process


@asynccontextmanager
async def full(redis: Any) -> AsyncIterator[None]:
    """Redis has no memory left, and refuses whatever may take some."""
    await redis.config_set("maxmemory", 1)
    try:
        with pytest.raises((OutOfMemoryError, ResponseError), match="maxmemory"):
            await redis.set("more", 1)
        yield
    finally:
        await redis.config_set("maxmemory", 0)


async def test_runs_are_cancelled_and_deleted(driver: StoreDriver, store: Store, redis: Any) -> None:
    running, lease = await driver.begin()
    queued = (await driver.submit()).run_id
    async with full(redis):
        await store.runs.cancel(queued)
        assert (await driver.get(queued)).status == "cancelled"
        await store.runs.cancel(running)
        assert (await driver.get(running)).status == "cancelling"
        await driver.finish(lease)
        assert (await driver.get(running)).status == "cancelled"
        await store.control.delete_run(queued)


async def test_so_they_are_by_a_version_whose_scripts_the_server_does_not_have(
    driver: StoreDriver, store: Store, redis: Any
) -> None:
    """It has to load what frees memory while there is none left (ADR 0006)."""
    running, lease = await driver.begin()
    queued = (await driver.submit()).run_id
    async with full(redis):
        await redis.script_flush()
        assert await store.steps.renew([lease]) == [Renewal.PROLONGED]
        await redis.script_flush()
        await store.runs.cancel(queued)
        assert (await driver.get(queued)).status == "cancelled"
        await redis.script_flush()
        await store.control.delete_run(queued)
    await driver.finish(lease)
    assert (await driver.get(running)).status == "completed"


async def test_steps_that_workers_have_end_and_none_begins(driver: StoreDriver, store: Store, redis: Any) -> None:
    run_id, lease = await driver.begin()
    lost, of_the_dead = await driver.begin()
    waiting = await driver.submit()
    async with full(redis):
        assert await store.steps.renew([lease]) == [Renewal.PROLONGED]
        await driver.finish(lease)
        assert (await driver.get(run_id)).status == "completed"
        await driver.lose(of_the_dead)
        assert "step.lost" in await driver.kinds(lost)
        with pytest.raises((OutOfMemoryError, ResponseError), match="maxmemory"):
            await driver.claim(waiting.deliveries[0])
        with pytest.raises((OutOfMemoryError, ResponseError), match="maxmemory"):
            await driver.submit()
