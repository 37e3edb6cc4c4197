"""What an archive costs a step, how fast it writes, and how fast it is read at several sizes.

Cost: the same conversations on two installations in turns, one of which archives into a file of SQLite beside it; each
has a Redis, an API and a worker of its own. Reading: rows are written into the database at once, and read over HTTP by
an API whose Redis is empty.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any, Final

import httpx
import orjson
from redis.asyncio import Redis

from bench.asked import BenchError
from bench.conversation import CALLS, INPUT, INSTRUCTIONS, MODEL, TOOL
from bench.report import Table, number, percentile, spread
from bench.rig import Rig
from bench.usage import Usage
from features.archive.database import Database
from features.archive.records import ArchivedConversation, ArchivedEntry, ArchivedRun
from features.stack.child import ChildCommand
from palaver.store.redis.connection import portions
from palaver.vocabulary.ids import new_conversation_id, new_run_id

_SLOTS: Final = 50
_WINDOW: Final = 10.0
"""Seconds of a sample: what a worker does while it has no step is in both."""
_SECONDS: Final = 60.0
_AT_ONCE: Final = 100
_TIMES: Final = 40
_AT: Final = 1_700_000_000_000
_COST: Final = (
    "CPU of the worker's process and of Redis, and commands that Redis was sent, scripts counted once; in a window of "
    f"{_WINDOW:g} s, divided by the steps in it. SQLite, whose commits the worker waits for in a thread of its own."
)


@dataclass(frozen=True)
class Side:
    """An installation."""

    rig: Rig
    client: httpx.AsyncClient
    worker: ChildCommand
    redis: Redis


async def measure(rounds: int, runs: int, sizes: Sequence[int]) -> list[Table]:
    """Measure the cost in so many rounds of so many runs, then lists over so many conversations.

    Raises BenchError when something is not there that has to be.
    """
    async with Rig() as plain, Rig() as archiving:
        database = f"sqlite:///{archiving.folder}/archive.db"
        async with _side(plain, {}) as one, _side(archiving, {"PALAVER_ARCHIVE_URL": database}) as other:
            cost = await _cost(one, other, rounds, runs)
            writing = await _writing(other, database, runs)
    reading = Table(
        "Reading what is in the archive alone, over HTTP",
        ("conversations", "database, MB", "Redis, MB", "list p50 / p99, ms", "by tag p50 / p99, ms",
         "a conversation comes back p50, ms: 10, 200, 2,000 messages"),
        note=f"SQLite. Lists of 50, each a page further; a tag that one in 97 has. {_TIMES} times each.",
    )  # fmt: skip
    for size in sizes:
        reading.rows.append(await _reading(size))
    return [cost, writing, reading]


@asynccontextmanager
async def _side(rig: Rig, environment: Mapping[str, str]) -> AsyncIterator[Side]:
    worker = rig.start_worker(_SLOTS, environment, "-l", "WARNING")
    await rig.workers_ready(worker)
    url, _ = await rig.start_api(**environment)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client, Redis.from_url(rig.redis.url) as redis:
        yield Side(rig, client, worker, redis)


async def _submit(side: Side, runs: int) -> None:
    agent = {"model": f"fake/{MODEL}", "instructions": INSTRUCTIONS, "tools": [TOOL]}
    body = {"agent": agent, "input": INPUT}
    for some in portions(range(runs), _AT_ONCE):
        for answer in await asyncio.gather(*(side.client.post("/v1/runs", json=body) for _ in some)):
            if answer.status_code != 202:
                raise BenchError(answer.text)


async def _cost(plain: Side, archiving: Side, rounds: int, runs: int) -> Table:
    sides = {"without": plain, "with an archive": archiving}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    for side in sides.values():
        await _sample(side, runs)
    for turn in range(rounds):
        for name in list(sides)[:: -1 if turn % 2 else 1]:
            found[name].append(await _sample(sides[name], runs))
    table = Table(
        f"A step with an archive ({rounds} times {runs} runs of {CALLS} steps)",
        ("", "worker CPU, us", "ratio", "Redis CPU, us", "ratio", "commands", "ratio"),
        note=_COST,
    )
    least = [median(each) for each in zip(*found["without"], strict=True)]
    for name, samples in found.items():
        columns = [[*each] for each in zip(*samples, strict=True)]
        ratios = [f"{median(column) / floor:.3f}" for column, floor in zip(columns, least, strict=True)]
        table.rows.append((name, *(word for pair in zip(map(spread, columns), ratios, strict=True) for word in pair)))
    return table


async def _sample(side: Side, runs: int) -> tuple[float, float, float]:
    """The worker's CPU, Redis's (us), and commands, of a step."""
    before, redis_before = Usage.of(side.worker.pid), Usage.of(side.rig.redis.pid)
    commands, end = await _commands(side), time.monotonic() + _WINDOW
    side.rig.asked.forget()
    await _submit(side, runs)
    await side.rig.asked.ended(runs * CALLS, within=_SECONDS, what=f"{runs} runs")
    if time.monotonic() > end:
        raise BenchError("the runs took longer than the window: ask for fewer")
    await asyncio.sleep(end - time.monotonic())
    after, redis_after = Usage.of(side.worker.pid), Usage.of(side.rig.redis.pid)
    steps = runs * CALLS
    return (
        1e6 * (after.cpu - before.cpu) / steps,
        1e6 * (redis_after.cpu - redis_before.cpu) / steps,
        (await _commands(side) - commands) / steps,
    )


async def _commands(side: Side) -> float:
    info: Any = await side.redis.info("stats")
    return float(info["total_commands_processed"])


async def _writing(side: Side, url: str, runs: int) -> Table:
    """Runs as fast as the worker takes them, and the time until the database has each."""
    database = Database.of(url)
    before, begun = (await database.size())["runs"], time.monotonic()
    lags = list[float]()
    task = asyncio.ensure_future(_submit(side, 5 * runs))
    while (there := (await database.size())["runs"] - before) < 5 * runs:
        oldest: Any = await side.redis.zrange("{p00}:unarchived", 0, 0, withscores=True)
        if oldest:
            lags.append(time.time() - float(oldest[0][1]) / 1000)
        if time.monotonic() - begun > 5 * _SECONDS:
            raise BenchError(f"{there} of {5 * runs} runs are archived")
        await asyncio.sleep(0.1)
    await task
    took = time.monotonic() - begun
    await database.close()
    table = Table("What one worker archives while it works", ("runs", "runs/s, archived", "steps/s", "oldest, s, p99"))
    lag = percentile(lags, 99) if lags else 0.0
    table.rows.append((f"{5 * runs}", number(5 * runs / took), number(5 * runs * CALLS / took), number(max(0.0, lag))))
    return table


async def _reading(size: int) -> Sequence[str]:
    async with Rig() as rig:
        url = f"sqlite:///{rig.folder}/archive.db"
        database = Database.of(url)
        await database.migrate()
        long = {messages: await _fill(database, 1, messages) for messages in (10, 200, 2_000)}
        await _fill(database, size, 4)
        bytes_ = (await database.size())["bytes"]
        await database.close()
        api_url, _ = await rig.start_api(PALAVER_ARCHIVE_URL=url)
        async with httpx.AsyncClient(base_url=api_url, timeout=60) as client, Redis.from_url(rig.redis.url) as redis:
            listed = await _pages(client, "/v1/conversations?limit=50")
            tagged = await _pages(client, "/v1/conversations?limit=50&tag=rare")
            comes = [await _comes_back(client, redis, *ids) for ids in long.values()]
            memory: Any = await redis.info("memory")
    return (
        f"{size:,}",
        number(bytes_ / 1e6),
        number(memory["used_memory"] / 1e6),
        *(f"{number(percentile(each, 50))} / {number(percentile(each, 99))}" for each in (listed, tagged)),
        ", ".join(number(each) for each in comes),
    )


async def _pages(client: httpx.AsyncClient, path: str) -> list[float]:
    took, cursor = list[float](), ""
    for _ in range(_TIMES):
        begun = time.perf_counter()
        answer = await client.get(path + (f"&cursor={cursor}" if cursor else ""))
        took.append(1e3 * (time.perf_counter() - begun))
        page = answer.raise_for_status().json()
        if not page["data"]:
            raise BenchError(f"{path} has nothing")
        cursor = page["next_cursor"] or ""
    return took


async def _comes_back(client: httpx.AsyncClient, redis: Redis, *ids: str) -> float:
    took = list[float]()
    for _ in range(_TIMES // 4):
        await redis.flushall()
        begun = time.perf_counter()
        (await client.get(f"/v1/conversations/{ids[0]}")).raise_for_status()
        took.append(1e3 * (time.perf_counter() - begun))
    return median(took)


async def _fill(database: Database, size: int, messages: int) -> Sequence[str]:
    """Write so many conversations of so many messages; return the ids of the last ones."""
    ids: Sequence[str] = ()
    numbers: Callable[[], int] = count().__next__
    for some in portions(range(size), 200):
        made = [_conversation(numbers(), messages) for _ in some]
        await database.write(made)
        ids = [each.id for each in made]
    return ids


def _conversation(place: int, messages: int) -> ArchivedConversation:
    conversation, run = new_conversation_id(1), new_run_id("00")
    at = str(_AT + place * 1000)
    agent = orjson.dumps({"model": f"fake/{MODEL}", "name": "bench"}).decode()
    tags = '["rare"]' if place % 97 == 0 else "[]"
    common = {"created_at": at, "updated_at": at, "agent": agent, "metadata": '{"customer":"4711"}', "tags": tags}
    said = orjson.dumps({"message": {"role": "user", "content": "word " * 40}}).decode()
    entries = [
        ArchivedEntry(place, {"type": "message.created", "at": at, "run": run, "seq": str(place), "data": said})
        for place in range(1, messages + 1)
    ]
    fields = {**common, "id": conversation, "title": "A refund", "entries": str(messages), "bytes": "4000"}
    ran = {
        **common, "id": run, "conversation": conversation, "status": "completed", "stop_reason": "end_turn",
        "model": "0", "seq": "1", "ended_at": at, "started_at": at, "deadline": at,
    }  # fmt: skip
    return ArchivedConversation(conversation, fields, entries, (ArchivedRun(run, ran),), 0)
