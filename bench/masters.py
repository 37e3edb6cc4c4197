"""What a step costs on a cluster: the same conversations on one server, and on one to three masters, with one to four
workers.

All of it shares the processors of this machine, so steps a second say little; what each component uses for a step is
what a fleet is computed from. The load of masters is even if conversations are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final, NamedTuple

from redis.asyncio import Redis

from bench.conversation import CALLS, INSTRUCTIONS, MODEL, TOOL
from bench.report import Table, number
from bench.rig import Rig
from bench.server_work import ServerWork
from bench.usage import Usage
from features.stack.ports import HOST
from features.stack.redis_server import RedisServer
from tests.redis_cluster import RedisCluster

_SLOTS: Final = 50
_AT_ONCE: Final = 50
_WITHIN: Final = 120.0
_CAPTION: Final = (
    "CPU of a step, user and system, ms: of all workers together, of the servers of the store together, and of the one "
    "that has the deliveries, which on one server is the same. Commands are the store's, those that scripts call "
    "included: where these are the same and CPU is not, servers were left alone for longer between two, and find "
    "colder caches. The last column is what the busiest master did, of the mean of all."
)


class Used(NamedTuple):
    """Seconds of CPU, by component; of the store by server."""

    workers: float
    store: Sequence[float]
    broker: float
    commands: int
    """Of the store."""


async def measure(rounds: int, most_workers: int = 4) -> list[Table]:
    """Measure each with so many rounds of 50 runs at once. Raises BenchError."""
    columns = (
        "store",
        "workers",
        "steps/s",
        "workers' CPU",
        "the store's CPU",
        "commands",
        "broker's CPU",
        "busiest master",
    )
    table = Table(f"A step on masters ({rounds} times {_AT_ONCE} runs)", columns, note=_CAPTION)
    for masters in (0, 1, 2, 3):
        # One at a time: what another one keeps for itself would be counted as the step's.
        with RedisCluster(masters) if masters else nullcontext() as cluster:
            async with Rig(store_url=cluster.url if cluster else None) as rig:
                servers = cluster.servers if cluster else [rig.redis]
                workers: list[int] = []
                for more in (1, 1, 2)[: most_workers.bit_length()]:
                    started = [rig.start_worker(_SLOTS, None, "-E", "-l", "INFO") for _ in range(more)]
                    await rig.workers_ready(*started)
                    workers += [each.pid for each in started]
                    await _converse(rig, 1)
                    name = f"{masters} master{'s' * (masters > 1)}" if masters else "one server"
                    table.rows.append((name, str(len(workers)), *await _row(rig, workers, servers, rounds)))
    return [table]


async def _row(rig: Rig, workers: Sequence[int], servers: Sequence[RedisServer], rounds: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    before, begun = await _used(rig, workers, servers), loop.time()
    await _converse(rig, rounds)
    seconds, after = loop.time() - begun, await _used(rig, workers, servers)
    steps = rounds * _AT_ONCE * CALLS
    store = [now - then for now, then in zip(after.store, before.store, strict=True)]
    clustered = rig.redis not in servers
    return (
        number(steps / seconds),
        number(1000 * (after.workers - before.workers) / steps),
        number(1000 * sum(store) / steps),
        number((after.commands - before.commands) / steps),
        number(1000 * (after.broker - before.broker) / steps) if clustered else "",
        f"{max(store) / (sum(store) / len(store)):.2f}" if clustered else "",
    )


async def _converse(rig: Rig, rounds: int) -> None:
    for _ in range(rounds):
        rig.asked.forget()
        await asyncio.gather(*(rig.submit(MODEL, tools=(TOOL,), instructions=INSTRUCTIONS) for _ in range(_AT_ONCE)))
        await rig.asked.ended(_AT_ONCE * CALLS, within=_WITHIN, what=f"{_AT_ONCE} conversations")


async def _used(rig: Rig, workers: Sequence[int], servers: Sequence[RedisServer]) -> Used:
    commands = 0
    for server in servers:
        async with Redis(host=HOST, port=server.port) as redis:
            commands += (await ServerWork.of(redis)).commands
    store = [Usage.of(server.pid).cpu for server in servers]
    return Used(Usage.of(*workers).cpu, store, Usage.of(rig.redis.pid).cpu, commands)
