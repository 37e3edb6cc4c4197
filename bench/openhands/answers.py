"""How long requests take: alone, and beside conversations that go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from bench.openhands.conversations import Clients
from bench.openhands.rows import Row, times
from bench.openhands.sides import Side
from bench.rig import Rig

_BUSY: Final = "tool-300+use-think+ttft-1000"
"""A step a second, longer than is measured: the same load on both sides, and one that both can carry."""
_PROBE: Final = "echo+ttft-100"
_LOOKS: Final = 3

Times = dict[str, list[float]]


async def measure(rig: Rig, sides: Sequence[Side], *, probes: int, busy: int) -> list[Row]:
    """So many probes of each side alone, and again while so many conversations run.

    Raises:
        BenchError: a side refuses something.
    """
    rows: list[Row] = []
    for beside in (0, busy):
        taken = [await _times(rig, side, probes, beside) for side in sides]
        where = f"beside {beside} running conversations" if beside else "alone"
        for request in taken[0]:
            ours, theirs = ([1e3 * each for each in of_side[request]] for of_side in taken)
            rows.append(times(f"{request} {where}", ours, theirs))
    return rows


async def _times(rig: Rig, side: Side, probes: int, beside: int) -> Times:
    taken: Times = {"send_message": [], "POST /run": [], "GET": []}
    async with Clients.of(rig, side) as clients, _going_on(clients, beside):
        for _ in range(probes):
            conversation = await clients.open(_PROBE, "hello")
            listening = asyncio.create_task(conversation.finished())
            taken["send_message"].append(await _seconds(conversation.say("Are you there?")))
            taken["POST /run"].append(await _seconds(conversation.run()))
            taken["GET"] += [await _seconds(conversation.status()) for _ in range(_LOOKS)]
            await listening
    return taken


@asynccontextmanager
async def _going_on(clients: Clients, count: int) -> AsyncIterator[None]:
    running = await clients.open_all(count, _BUSY)
    await asyncio.gather(*(each.run() for each in running))
    try:
        yield
    finally:
        await asyncio.gather(*(each.stop("interrupt") for each in running))


async def _seconds(asked: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await asked
    return time.perf_counter() - begun
