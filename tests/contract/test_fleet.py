"""What workers say of themselves."""

from __future__ import annotations

from typing import Any

from palaver.store.fleet.fleet import WorkerReport
from palaver.store.redis import fleet_keys
from tests.contract.store_driver import StoreDriver

REPORT = WorkerReport(id="w1", queues=("model",), in_flight=3, capacity=500, draining=False)


async def test_workers_report_and_leave(driver: StoreDriver) -> None:
    both = ("model", "tools")
    other = WorkerReport(id="w2", queues=both, in_flight=3, capacity=9, draining=True, by_queue=(1, 2))
    for report in (REPORT, other, REPORT):
        await driver.store.fleet.report(report)
    assert sorted(await driver.store.fleet.workers(), key=lambda worker: worker.id) == [REPORT, other]

    await driver.store.fleet.leave("w1")
    assert await driver.store.fleet.workers() == [other]


async def test_a_silent_worker_is_forgotten(driver: StoreDriver, redis: Any) -> None:
    await driver.store.fleet.report(REPORT)
    assert 0 < await redis.ttl(fleet_keys.worker("w1")) <= 15
    await redis.delete(fleet_keys.worker("w1"))
    assert await driver.store.fleet.workers() == []

    await redis.zadd(fleet_keys.WORKERS, {"w1": 1})
    seconds, _ = await redis.time()
    await redis.zadd(fleet_keys.WORKERS, {"seldom": seconds - 1000})
    await driver.store.fleet.report(WorkerReport(id="w2", queues=("model",), in_flight=0, capacity=1, draining=False))
    assert await redis.zrange(fleet_keys.WORKERS, 0, -1) == [b"seldom", b"w2"]
