"""Masters with a million runs in them: what a run takes of their memory, and whether what is asked of the store takes
longer than when it was empty."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import httpx

from bench.asked import BenchError
from bench.history import ANSWERED
from bench.leasing import TOGETHER, USED, a_run, failed, lease, submit_many
from bench.report import Table, number, percentile
from bench.rig import Rig
from bench.usage import Usage
from palaver.config.settings import Settings
from palaver.steps.leases import Delivery
from palaver.steps.verdicts import Finish
from palaver.store import Store
from palaver.store.redis.rounds import FULL_ROUND
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.step_kinds import MODEL, QUEUES
from tests.redis_cluster import RedisCluster

T = TypeVar("T")

_TIMES: Final = 50
_LONG_ENOUGH: Final = 20.0
"""Seconds after which a list is not read again."""
_MOST_PAGES: Final = 10_000
_LOOKS_A_SECOND: Final = 4
_ROOM: Final = 10_000_000
_OPTIONS: Final = {"auto-aof-rewrite-percentage": "0"}
"""The AOF grows: to write it anew takes a processor for minutes, and as much memory again."""
_LISTS: Final = ("", "status=failed", "status=queued", "tag=rare", "status=failed&tag=rare")


async def measure(ended: int, waiting: int, probes: int, masters: int = 3) -> list[Table]:
    """Look at an empty cluster, at one with so many runs that have ended, and at one with so many more that wait.
    ``probes`` are the runs that are timed.

    Raises BenchError when something that is there is not found.
    """
    tables = (
        Table(
            f"{masters} masters with many runs: a call of the store",
            ("runs", "submit", "claim", "settle", "masters' CPU, us a run"),
            note=f"p50 / p99 in ms of {probes:,} runs of one step, one after the other: submitted, claimed, settled.",
        ),
        Table(
            "The same: lists over HTTP",
            ("runs", *(query or "all" for query in _LISTS), "all by status, counted"),
            note=f"p50 / p99 in ms of up to {_TIMES} ways to the first run, in pages of 50. One run has the tag.",
        ),
        Table(
            "The same: one sweeper",
            ("runs", "a look at what is due", "a look for what is lost", "the rest", "its CPU, %", "masters' CPU, %"),
            note=f"p50 / p99 in ms, and % of one CPU, over {FULL_ROUND:g} s, in which it has seen every shard.",
        ),
        Table(
            "The same: memory",
            ("runs", "MB by master", "bytes a run more", "resident MB by master"),
            note="As the servers say. A run has ended with an answer, or waits with its first message.",
        ),
    )
    with RedisCluster(masters, options=_OPTIONS) as cluster:
        async with Rig(store_url=cluster.url) as rig, _store(rig, cluster) as store:
            url, _ = await rig.start_api(PALAVER_MAX_RUNS=str(_ROOM))
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                look = _Look(store, client, cluster, tables, probes)
                await failed(store, 1, tags=("rare",))
                await look.at("none", 0)
                await _ended(store, ended)
                await look.at(f"{ended:,} ended", ended)
                await _waiting(store, waiting)
                await look.at(f"{waiting:,} wait, too", waiting)
    return list(tables)


@asynccontextmanager
async def _store(rig: Rig, cluster: RedisCluster) -> AsyncIterator[Store]:
    # What watchers saw of these runs goes at once: they are not watched.
    settings = Settings(redis_url=cluster.url, broker_url=rig.redis.url, feed_retention=1, max_runs=_ROOM)
    async with Store.connect(settings) as store:
        yield store


class _Look:
    """Rows of all tables, for what the store has at a moment."""

    def __init__(
        self, store: Store, client: httpx.AsyncClient, cluster: RedisCluster, tables: Sequence[Table], probes: int
    ) -> None:
        self._store = store
        self._client = client
        self._cluster = cluster
        self._tables = tables
        self._probed = probes
        self._memory = 0

    async def at(self, title: str, more: int) -> None:
        """Measure everything. ``more`` runs have come since the last look."""
        calls, lists, sweeps, memory = self._tables
        memory.rows.append((title, *self._used(more)))
        calls.rows.append((title, *await self._probes()))
        lists.rows.append((title, *[await self._listed(query) for query in _LISTS], await self._counted()))
        sweeps.rows.append((title, *await self._swept()))
        self._memory = sum(self._bytes("used_memory"))
        for table in self._tables:
            print(f"\nbench: {table.title}: {' | '.join(table.rows[-1])}", end="", file=sys.stderr, flush=True)

    async def _probes(self) -> Sequence[str]:
        took: tuple[list[float], ...] = ([], [], [])
        used = self._cpu()
        for _ in range(self._probed):
            submitted, ms = await _timed(self._store.runs.submit(a_run()))
            took[0].append(ms)
            # It may be behind others in its shard, and not delivered yet; a worker that has a hint of it may have it.
            place = (await self._store.runs.get(submitted.run_id)).conversation_id
            due = Delivery(MODEL.queue, submitted.run_id, place, "1", 1)
            held, ms = await _timed(lease(self._store, due))
            took[1].append(ms)
            _, ms = await _timed(self._store.steps.settle(held, Finish(ANSWERED, StopReason.END_TURN, USED)))
            took[2].append(ms)
        return (*(_of(each) for each in took), number(1e6 * (self._cpu() - used) / self._probed))

    async def _listed(self, query: str) -> str:
        """What the way to the first run takes, which may be some pages long."""
        took: list[float] = []
        pages, begun = 1, time.monotonic()
        while len(took) < _TIMES and time.monotonic() - begun < _LONG_ENOUGH:
            pages, ms = await _timed(self._walk(query))
            took.append(ms)
        return f"{_of(took)}, {pages:,} pages" if pages > 1 else _of(took)

    async def _walk(self, query: str) -> int:
        cursor: str | None = ""
        pages = 0
        while True:
            pages += 1
            answer = await self._client.get(f"/v1/runs?limit=50&{query}{f'&cursor={cursor}' if cursor else ''}")
            answer.raise_for_status()
            cursor = answer.json()["next_cursor"]
            if answer.json()["data"] or not cursor or pages == _MOST_PAGES:
                break
        if "failed" in query and not answer.json()["data"]:
            raise BenchError(f"the list {query!r} has nothing: {answer.text[:500]}")
        return pages

    async def _counted(self) -> str:
        took = []
        for _ in range(_TIMES):
            counts, ms = await _timed(self._client.get("/v1/runs/count"))
            counts.raise_for_status()
            took.append(ms)
        return _of(took)

    async def _swept(self) -> Sequence[str]:
        """What a worker's sweeper asks, at its pace, but acts on nothing."""
        store, loop = self._store, asyncio.get_running_loop()
        begun, own, used = loop.time(), time.process_time(), self._cpu()
        due, lost, rest = [], [], []
        for look in range(int(FULL_ROUND * _LOOKS_A_SECOND)):
            await store.rounds.share("bench")
            due.append((await _timed(store.due.due()))[1])
            for queue in QUEUES:
                _, ms = await _timed(store.due.unclaimed(queue, 0.5, 16))
                lost.append(ms)
            if look % _LOOKS_A_SECOND == 0:
                rest.append((await _timed(self._rest()))[1])
            await asyncio.sleep(max(0.0, begun + (look + 1) / _LOOKS_A_SECOND - loop.time()))
        seconds = loop.time() - begun
        shares = ((time.process_time() - own) / seconds, (self._cpu() - used) / seconds)
        return (*(_of(each) for each in (due, lost, rest)), *(number(100 * share) for share in shares))

    async def _rest(self) -> None:
        store = self._store
        await store.due.fill()
        await store.due.forget_expired()
        await store.due.forget_conversations()
        await store.lacking.forget_stale()
        await store.caps.allowed(0.5)

    def _used(self, more: int) -> Sequence[str]:
        used = self._bytes("used_memory")
        each = number((sum(used) - self._memory) / more) if more else ""
        return (_megabytes(used), each, _megabytes(self._bytes("used_memory_rss")))

    def _bytes(self, what: str) -> Sequence[int]:
        return [int(self._cluster.client(server).info("memory")[what]) for server in self._cluster.servers]

    def _cpu(self) -> float:
        return sum(Usage.of(server.pid).cpu for server in self._cluster.servers)


async def _timed(call: Awaitable[T]) -> tuple[T, float]:
    begun = time.perf_counter()
    answer = await call
    return answer, 1000 * (time.perf_counter() - begun)


def _of(took: Sequence[float]) -> str:
    """The p50 and the p99 of some milliseconds."""
    return " / ".join(number(percentile(took, percent)) for percent in (50, 99))


def _megabytes(values: Sequence[int]) -> str:
    return ", ".join(f"{value / 1e6:,.0f}" for value in values)


def _batches(count: int) -> Iterator[int]:
    for start in range(0, count, TOGETHER):
        yield min(TOGETHER, count - start)


async def _ended(store: Store, count: int) -> None:
    """Runs that were answered at once."""

    async def end(due: Delivery) -> None:
        await store.steps.settle(await lease(store, due), Finish(ANSWERED, StopReason.END_TURN, USED))

    for batch in _batches(count):
        await asyncio.gather(*(end(due) for made in await submit_many(store, batch) for due in made.deliveries))


async def _waiting(store: Store, count: int) -> None:
    """Runs of which every other one waits for a worker, and the others for tomorrow."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for batch in _batches(count // 2):
        await submit_many(store, batch)
        await submit_many(store, batch, start_after=tomorrow)
