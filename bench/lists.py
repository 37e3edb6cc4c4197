"""What lists of many runs cost, and how many runs a second are cancelled and retried in bulk, over HTTP."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from redis.asyncio import Redis

from bench.asked import BenchError
from bench.leasing import TOGETHER, failed, submit_many
from bench.report import Table, percentile
from bench.rig import Rig
from bench.usage import Usage
from palaver.config.settings import Settings
from palaver.store import Store

_TIMES = 20
_SLOW_US = 500


async def measure(runs: int, cancelled: int, retried: int) -> list[Table]:
    """Lists over ``runs`` that have ended, of which one failed and one has a tag; then so many cancels and retries.

    Raises BenchError when a list or a bulk action does not find what there is.
    """
    async with Rig() as rig, store_of(rig) as (store, redis):
        url, api = await rig.start_api(PALAVER_MAX_RUNS="1000000")
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            meter = _Meter(client, redis, api.pid)
            await past(store, runs // 2)
            rare = (await failed(store, 1, tags=("rare",)))[0]
            await past(store, runs - runs // 2 - 1)
            lists = Table(
                f"Lists over {runs:,} runs, one of which is sought",
                ("filter", "pages", "p50, ms", "max, ms", "Redis, ms a page", "its longest command, ms"),
                note=f"{_TIMES} times each, until the run is there; over HTTP, limit 50. Of commands under "
                f"{_SLOW_US / 1000:g} ms no times are kept.",
            )
            for query in ("", "status=failed", "error_code=provider_error", "retried=false&status=failed", "tag=rare"):
                lists.rows.append(await meter.listed(query, rare if query else None))
            bulk = Table(
                "Bulk actions over HTTP",
                ("action", "runs", "runs/s", "API, us a run", "Redis, us a run", "its longest command, ms"),
                note="Requests of 500 runs, one after the other, as the SDK sends them. CPU of the API's process and "
                "of Redis's main thread; what takes longest may have waited for a CPU.",
            )
            await _scheduled(store, cancelled, "later")
            bulk.rows.append(await meter.acted("cancel", {"tag": "later"}, cancelled))
            await failed(store, retried, tags=("outage",))
            bulk.rows.append(await meter.acted("retry", {"tag": "outage", "status": "failed"}, retried))
    return [lists, bulk]


@asynccontextmanager
async def store_of(rig: Rig) -> AsyncIterator[tuple[Store, Redis]]:
    """A store whose runs leave little behind, and a connection to its Redis."""
    # What watchers saw of these runs goes at once: they are not watched, and it would take half a GB.
    settings = Settings(redis_url=rig.redis.url, feed_retention=1, max_runs=1_000_000)
    redis = Redis.from_url(rig.redis.url)
    async with Store.connect(settings) as store:
        yield store, redis
    await redis.aclose()


class _Meter:
    """Asks the API, and Redis what that took."""

    def __init__(self, client: httpx.AsyncClient, redis: Redis, api: int) -> None:
        self._client = client
        self._redis = redis
        self._api = api
        self._begun = 0.0

    async def listed(self, query: str, sought: str | None) -> Sequence[str]:
        """A row about a list; without ``sought`` of its first page."""
        elapsed, pages = [], 0
        await self._begin()
        for _ in range(_TIMES):
            begun, cursor, found = time.perf_counter(), "", False
            while not found:
                page = await self._client.get(f"/v1/runs?{query}{'&' if query and cursor else ''}{cursor}")
                pages += 1
                ids = [run["id"] for run in page.json()["data"]]
                found = sought in ids if sought else bool(ids)
                cursor = f"cursor={page.json()['next_cursor']}"
                if not found and page.json()["next_cursor"] is None:
                    raise BenchError(f"{query}: {sought} is not there")
            elapsed.append((time.perf_counter() - begun) * 1000)
        spent, longest = await self._spent()
        name = f"`{query}`" if query else "none (the first page)"
        times = (f"{percentile(elapsed, 50):.1f}", f"{max(elapsed):.1f}")
        return (name, f"{pages / _TIMES:g}", *times, f"{spent / pages:.2f}", f"{longest:.1f}")

    async def acted(self, action: str, admitted: dict[str, Any], runs: int) -> Sequence[str]:
        """A row about a bulk action."""
        body: dict[str, Any] = {"action": action, "filter": admitted, "limit": 500}
        await self._begin()
        begun, used, done, cursor = time.perf_counter(), Usage.of(self._api).cpu, 0, None
        while done == 0 or cursor:
            answer = await self._client.post("/v1/runs/actions", json={**body, "cursor": cursor})
            answer.raise_for_status()
            done, cursor = done + answer.json()["done"], answer.json()["next_cursor"]
        took = time.perf_counter() - begun
        if done != runs:
            raise BenchError(f"{action}: {done} of {runs} runs")
        spent, longest = await self._spent()
        each = (1e6 * (Usage.of(self._api).cpu - used) / runs, 1e3 * spent / runs)
        return (action, f"{runs:,}", f"{runs / took:,.0f}", *(f"{us:.0f}" for us in each), f"{longest:.1f}")

    async def _begin(self) -> None:
        # Not less: each command within a script would be noted, too, and that takes longer than most of them.
        await self._redis.config_set("slowlog-log-slower-than", _SLOW_US)
        await self._redis.slowlog_reset()
        self._begun = await self._cpu()

    async def _spent(self) -> tuple[float, float]:
        """Milliseconds of CPU that the server's main thread has used since `_begin`, and those that its longest command
        took."""
        spent = await self._cpu() - self._begun
        entries = await self._redis.slowlog_get(1_000)
        return spent, max((entry["duration"] for entry in entries), default=_SLOW_US) / 1000

    async def _cpu(self) -> float:
        used = await self._redis.info("cpu")
        return 1000 * float(used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"])


async def _scheduled(store: Store, count: int, tag: str) -> None:
    await submit_many(store, count, start_after=datetime.now(UTC) + timedelta(days=1), tags=(tag,))


async def past(store: Store, count: int) -> None:
    """Runs that have ended."""
    await _scheduled(store, count, "past")
    cursor, done = None, 0
    while done < count:
        page = await store.runs.list({"status": "queued"}, limit=TOGETHER, cursor=cursor)
        done, cursor = done + len(await store.bulk.cancel(page.runs)), page.next_cursor
