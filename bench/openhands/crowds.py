"""How many conversations may run at once: what is refused, and how long the others take."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import httpx

from bench.openhands.conversations import Clients
from bench.openhands.load import CALLS, MODEL
from bench.openhands.rows import Row
from bench.openhands.sides import AgentServer, Side
from bench.report import number
from bench.rig import Rig

_SLOW: Final = "echo+ttft-3000"
"""Long enough for all of them to run at once."""


async def measure(rig: Rig, ours: Side, *, crowd: int, refused: int) -> list[Row]:
    """A crowd on ours; on the reference, with its own limit, as many as show what it does beyond that."""
    theirs = AgentServer(rig, limited=True)
    await theirs.start()
    try:
        async with Clients.of(rig, theirs) as clients:
            opened = await clients.open_all(refused, _SLOW)
            answers = await asyncio.gather(*(each.run() for each in opened))
    finally:
        theirs.end()
    async with Clients.of(rig, ours) as clients:
        opened = await clients.open_all(crowd, MODEL)
        begun = time.monotonic()
        listening = [asyncio.create_task(each.finished()) for each in opened]
        taken = await asyncio.gather(*(each.run() for each in opened))
        answered = time.monotonic() - begun
        for heard, status in zip(listening, taken, strict=True):
            if status != httpx.codes.OK:
                heard.cancel()
        await asyncio.gather(*(heard for heard in listening if not heard.cancelling()))
        whole = time.monotonic() - begun
    return [
        Row("POST /run, all at once, is answered", _counted(taken), f"{_counted(answers)} (its own limit)"),
        Row(f"{crowd} runs at once: all are taken, s", number(answered), "-"),
        Row(f"{crowd} runs at once, {CALLS} steps each: all are finished, s", number(whole), "-"),
        Row(f"{crowd} runs at once: steps/s", number(crowd * CALLS / whole), "-"),
    ]


def _counted(answers: list[int]) -> str:
    return ", ".join(f"{answers.count(each)} with {each}" for each in sorted(set(answers)))
