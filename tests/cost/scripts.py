"""`python -m tests.cost.scripts`: how long each script keeps Redis busy with the largest thing that gets in, and how
that grows. The table of docs/reference/limits.md, on this machine."""

from __future__ import annotations

import asyncio
import math

from redis.asyncio import Redis

from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.store import Store
from tests.contract.store_driver import StoreDriver
from tests.cost.case import Case
from tests.cost.cases import CASES
from tests.cost.meters import Stopwatch, watch
from tests.unit.api_world import SETTINGS

_TIMES = 5


async def measure(case: Case, size: int, redis: Redis) -> float:
    """Milliseconds of Redis, the least of a few times: what is more is other work of the machine."""
    found = []
    for _ in range(_TIMES):
        await redis.flushall()
        store = Store(redis, Settings(redis_url="redis://127.0.0.1:1/0", secret_key=SETTINGS.secret_key))
        act = await case.prepare(StoreDriver(store, redis), size)
        costs = watch(store, Stopwatch(redis))
        await act()
        found.append(costs.of[case.script])
    return min(found)


async def main() -> None:
    """Print the table."""
    print("| script | with so many | most | grows as | Redis is held for |\n|---|---|---|---|---|")
    with RedisServer() as server:
        redis = Redis.from_url(server.url)
        for case in CASES:
            sizes = [case.most // 4, case.most // 2, case.most]
            times = [await measure(case, size, redis) for size in sizes]
            exponent = max(0.0, math.log(times[2] / times[0]) / math.log(sizes[2] / sizes[0]))
            print(f"| `{case.script}` | {case.what} | {case.most} | n^{exponent:.2f} | {times[2]:.1f} ms |", flush=True)
        await redis.aclose()


if __name__ == "__main__":
    asyncio.run(main())
