"""What makes scripts of schedules dear."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from features.schedules.contract import NextTick
from features.schedules.schedules import ScheduleOrder, Schedules
from features.schedules.ticks import Ticks
from palaver.schemas.bearers import Bearer
from palaver.schemas.schedules import ScheduledRun, ScheduleTick, Timing
from tests.contract.store_driver import AGENT, StoreDriver
from tests.cost.case import Act, Case


async def _schedule(driver: StoreDriver, n: int) -> ScheduleOrder:
    """A schedule whose run has ``n`` KiB."""
    order = ScheduleOrder(ScheduledRun(agent=AGENT, input="x" * 1024 * n), Bearer())
    await driver.store.part(Schedules).keep("", "nightly", order, Timing(every=60), NextTick(1000, 1000))
    return order


async def _keep_schedule(driver: StoreDriver, n: int) -> Act:
    order = await _schedule(driver, n)
    schedules = driver.store.part(Schedules)
    return lambda: schedules.keep("", "nightly", order, Timing(every=90), NextTick(2000, 2000))


async def _pause_schedule(driver: StoreDriver, n: int) -> Act:
    await _schedule(driver, n)
    return lambda: driver.store.part(Schedules).pause("", "nightly", by=None)


async def _remove_schedule(driver: StoreDriver, n: int) -> Act:
    await _schedule(driver, n)
    return lambda: driver.store.part(Schedules).remove("", "nightly")


async def _claim_tick(driver: StoreDriver, n: int) -> Act:
    await _schedule(driver, n)
    (due,), _ = await driver.store.part(Ticks).due()
    return lambda: driver.store.part(Ticks).claim(due, 1000, None, NextTick(2**42, 2**42))


async def _settle_tick(driver: StoreDriver, n: int) -> Act:
    await _schedule(driver, n)
    (due,), _ = await driver.store.part(Ticks).due()
    claimed = await driver.store.part(Ticks).claim(due, 1000, None, NextTick(2**42, 2**42))
    assert claimed is not None
    moment = datetime.fromtimestamp(1, UTC)
    return lambda: driver.store.part(Ticks).settle(claimed, ScheduleTick(tick=moment, at=moment, outcome="skipped"))


SCRIPTS: Final = (
    Case("keep_schedule", "KiB of a run", _keep_schedule, most=255),
    Case("pause_schedule", "KiB of a run", _pause_schedule, most=255),
    Case("remove_schedule", "KiB of a run", _remove_schedule, most=255),
    Case("claim_tick", "KiB of a run", _claim_tick, most=255),
    Case("settle_tick", "KiB of a run", _settle_tick, most=255),
)
