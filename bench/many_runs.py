"""Short runs by the ten thousand, each a conversation of its own: what a worker has behind it after some days."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from bench.rig import Rig
from palaver.delivery.deliveries import Publisher

SHORT: Final = "echo"
"""Answers at once: one model call."""
_BATCH: Final = 500
_AT_ONCE: Final = 50
"""Submits under way."""
_WITHIN: Final = 120.0


async def work_off(rig: Rig, runs: int, publisher: Publisher | None = None) -> None:
    """Have so many short runs done by the worker that consumes from there. Raises BenchError."""
    for done in range(0, runs, _BATCH):
        rig.asked.forget()
        batch = min(_BATCH, runs - done)
        await _at_once(lambda: rig.submit(SHORT, publisher=publisher), batch)
        await rig.asked.ended(batch, within=_WITHIN, what=f"short runs {done} to {done + batch}")


async def _at_once(submit: Callable[[], Awaitable[object]], count: int) -> None:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one() -> None:
        async with room:
            await submit()

    await asyncio.gather(*(one() for _ in range(count)))
