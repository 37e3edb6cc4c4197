"""What a tenant waits for another one's crowd, for workers and for a provider with few places, and its share."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from redis.asyncio import Redis

from bench.asked import Call
from bench.conversation import TOOL
from bench.report import Table
from bench.rig import Rig
from palaver.errors import StateConflict
from palaver.schemas.tenants import CapsChange
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from palaver.vocabulary.ids import tenant_of

MANY, FEW = "bench1", "bench2"
"""Tags of two tenants."""
_SLOTS: Final = 20
_PLACES: Final = 10
"""That a provider has."""
_RUN: Final = "tool-3+ttft-100"
"""Four model calls of 0.1 s with a quick tool behind each but the last."""
_ONE_CALL: Final = "echo+ttft-300"
_WITHIN: Final = 120.0


async def measure(crowd: int, runs: int, calls: int) -> list[Table]:
    """Submit so many ``runs`` alone, and behind a ``crowd``; count so many ``calls`` by weight. Raises BenchError."""
    table = Table(
        f"{runs} runs of one tenant, alone and behind {crowd} of another ({_SLOTS} slots)",
        ("", "s until all have ended", "times alone"),
        note=f"Each run makes four model calls of 0.1 s. Of the provider with places, {_PLACES}.",
    )
    async with Rig() as rig, Redis.from_url(rig.redis.url, decode_responses=True) as redis:
        rig.add_provider("ten", rig.model_url, f"max_in_flight = {_PLACES}\n")
        await rig.workers_ready(rig.start_worker(_SLOTS))
        for name, provider in (("workers", "fake"), (f"a provider with {_PLACES} places", "ten")):
            alone = min([await _took(rig, provider, runs) for _ in range(3)])
            await _submit(rig, MANY, f"{provider}/{_RUN}", crowd)
            behind = await _took(rig, provider, runs)
            idle = await _idle(redis) if provider == "fake" else None
            single = await _took(rig, provider, 1)
            await _clear(rig, redis)
            table.rows.append((f"alone, {name}", f"{alone:.2f}", "1.0"))
            table.rows.append((f"behind the crowd, {name}", f"{behind:.2f}", f"{behind / alone:.1f}"))
            table.rows.append((f"one more, alone behind it, {name}", f"{single:.2f}", ""))
            if idle is not None:
                table.rows.append((f"idle slots of {_SLOTS} meanwhile, on the average", f"{idle:.1f}", ""))
    shares = [await _shares(calls, weight) for weight in (1, 3)]
    return [table, _shares_table(shares, calls)]


async def _submit(rig: Rig, tenant: str, model: str, runs: int) -> list[str]:
    with within(Reach(tenant)):
        return [await rig.submit(model, tools=(TOOL,)) for _ in range(runs)]


async def _took(rig: Rig, provider: str, runs: int) -> float:
    """Seconds from the submit of so many runs until the last one has ended."""
    began = time.monotonic()
    await rig.ended(await _submit(rig, FEW, f"{provider}/{_RUN}", runs), every=0.01)
    return time.monotonic() - began


async def _idle(redis: Redis) -> float:
    """Slots that no step has, on the average of 200 samples."""
    idle = 0
    for _ in range(200):
        in_flight = [await redis.zcard(keys.in_flight("00", keys.owner(tag))) for tag in (MANY, FEW)]
        idle += max(0, _SLOTS - sum(in_flight) + await redis.zcard(keys.ready("00", "model")))
        await asyncio.sleep(0.01)
    return idle / 200


async def _clear(rig: Rig, redis: Redis) -> None:
    """End what is left."""
    while left := [
        str(run_id)
        for status in ("queued", "running", "cancelling")
        for tenant in (MANY, FEW)
        for run_id in await redis.zrange(keys.runs("00", status, keys.owner(tenant)), 0, 499)
    ]:
        for run_id in left:
            with suppress(StateConflict):
                await rig.store.runs.cancel(run_id)
        await asyncio.sleep(0.05)


async def _shares(calls: int, weight: int) -> float:
    """The share of calls that a tenant of this weight gets beside one of weight 1, both with a backlog."""
    async with Rig() as rig:
        await rig.store.caps.change(MANY, CapsChange(weight=weight))
        for tenant in (MANY, FEW):
            await _submit(rig, tenant, f"fake/{_ONE_CALL}", calls)
        rig.start_worker(_SLOTS)

        def enough(seen: Sequence[Call]) -> bool:
            return len(seen) >= calls

        seen = await rig.asked.until(enough, within=_WITHIN, what=f"{calls} calls")
    return Counter(tenant_of(call.run) for call in seen[:calls])[MANY] / calls


def _shares_table(shares: Sequence[float], calls: int) -> Table:
    table = Table(f"Shares of {calls} calls of two tenants that both wait", ("weights", "share", "by weight"))
    for (name, expected), share in zip((("1 : 1", 0.5), ("3 : 1", 0.75)), shares, strict=True):
        table.rows.append((name, f"{share:.3f}", f"{expected:.3f}"))
    return table
