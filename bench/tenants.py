"""The cost of many tenants to Redis, and the turns of a thousand with one run each behind one with a crowd."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from redis.asyncio import Redis

from bench.asked import Call
from bench.report import Table
from bench.rig import Rig
from bench.server_work import ServerWork
from palaver.schemas.tenants import CapsChange
from palaver.store.redis.reach import Reach, within
from palaver.vocabulary.ids import tenant_of

CROWD: Final = "many00"
"""The tag of the tenant with the crowd."""
_SLOTS: Final = 20
_MODEL: Final = "fake/echo"
_SLOW: Final = "fake/echo+ttft-100"
_WITHIN: Final = 300.0


async def measure(numbers: Sequence[int], backlog: int, calls: int, crowd: int, singles: int) -> list[Table]:
    """Spread a ``backlog`` of runs over so many tenants, and let Redis say what ``calls`` of them took. Submit
    ``singles`` runs, of a tenant each, behind a ``crowd`` of another. Raises BenchError."""
    costs = [await _cost(number, backlog, calls) for number in numbers]
    table = Table(
        f"Redis while {backlog:,} runs wait, by the number of tenants that they are of",
        ("tenants", "us in scripts a run", "us of CPU a run", "times one tenant"),
        note=f"Of one model call each; {calls:,} of them, {_SLOTS} slots. In scripts: by Redis's own clock.",
    )
    for number, (scripts, cpu) in zip(numbers, costs, strict=True):
        table.rows.append((f"{number:,}", f"{scripts * 1e6:.0f}", f"{cpu * 1e6:.0f}", f"{scripts / costs[0][0]:.2f}"))
    return [table, await _behind(crowd, singles), await _killed(calls)]


def _tag(number: int) -> str:
    return f"t{number:05}"


async def _submit(rig: Rig, tenant: str, model: str, runs: int = 1) -> None:
    with within(Reach(tenant)):
        for _ in range(runs):
            await rig.submit(model)


async def _calls(rig: Rig, number: int) -> list[Call]:
    def enough(seen: list[Call]) -> bool:
        return len(seen) >= number

    return await rig.asked.until(enough, within=_WITHIN, what=f"{number} calls")


async def _cost(tenants: int, backlog: int, calls: int) -> tuple[float, float]:
    """Seconds in scripts, and of CPU, that a run takes of Redis."""
    async with Rig() as rig, Redis.from_url(rig.redis.url, decode_responses=True) as redis:
        for number in range(backlog):
            await _submit(rig, _tag(number % tenants), _MODEL)
        await rig.workers_ready(rig.start_worker(_SLOTS))
        begun = len(await _calls(rig, 500))
        before = await ServerWork.of(redis)
        ended = len(await _calls(rig, begun + calls))
        work = await ServerWork.of(redis) - before
    return work.in_scripts / (ended - begun), work.cpu / (ended - begun)


async def _behind(crowd: int, singles: int) -> Table:
    """The number of calls until the last of the ``singles`` has had its own, which all come behind the crowd."""
    async with Rig() as rig:
        await _submit(rig, CROWD, _MODEL, crowd)
        for number in range(singles):
            await _submit(rig, _tag(number), _MODEL)
        rig.start_worker(_SLOTS)

        def all_came(seen: list[Call]) -> bool:
            return sum(tenant_of(call.run) != CROWD for call in seen) >= singles

        seen = await rig.asked.until(all_came, within=_WITHIN, what=f"calls of {singles} tenants", every=0.2)
    last = max(place for place, call in enumerate(seen, 1) if tenant_of(call.run) != CROWD)
    table = Table(
        f"{singles:,} tenants with a run each, submitted behind {crowd:,} runs of another one",
        ("", "calls"),
        note="By turns, the crowd has one turn while each of the others has one; what was on its way goes first.",
    )
    table.rows.append(("until the last of them has had its call", f"{last:,}"))
    table.rows.append(("those of the crowd among them", f"{last - singles:,}"))
    return table


async def _killed(calls: int) -> Table:
    """The shares of two tenants whose workers are all killed, twice, while both wait."""
    async with Rig(lease_seconds=3.0) as rig:
        await rig.store.caps.change(_tag(0), CapsChange(weight=3))
        for tenant in (_tag(0), _tag(1)):
            await _submit(rig, tenant, _SLOW, calls)
        seen: list[Call] = []
        for part in (1, 2, 3):
            worker = rig.start_worker(_SLOTS)
            seen = await _calls(rig, calls * part // 3)
            worker.kill(signal.SIGKILL)
    first = sum(tenant_of(call.run) == _tag(0) for call in seen[:calls])
    table = Table(
        f"Shares of {calls:,} calls of two tenants, weights 3 : 1, through two kill -9 of all workers",
        ("share", "by weight"),
    )
    table.rows.append((f"{first / calls:.3f}", "0.750"))
    return table
