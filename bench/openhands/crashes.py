"""What becomes of conversations when everything but the database is killed with -9 in the middle of their calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median
from typing import Final

from bench.asked import BenchError, Call
from bench.openhands.conversations import Clients, Conversation
from bench.openhands.rows import Row, both
from bench.openhands.sides import Side
from bench.rig import Rig

_MODEL: Final = "tool-3+use-think+ttft-1000"
_WITHIN: Final = 120.0
_LOOK: Final = 0.1


async def measure(rig: Rig, sides: Sequence[Side], *, crashes: int, conversations: int) -> list[Row]:
    """Kill each side so often, with so many conversations in their second call of the model.

    Raises:
        BenchError: a side does not come back, or does not finish them.
    """
    names = ("answers", "again", "done")
    seconds: dict[str, dict[str, list[float]]] = {side.name: {name: [] for name in names} for side in sides}
    alone: dict[str, int] = {side.name: 0 for side in sides}
    for _ in range(crashes):
        for side in sides:
            found, by_themselves = await _crash(rig, side, conversations)
            for name, value in zip(names, found, strict=True):
                seconds[side.name][name].append(value)
            alone[side.name] += by_themselves
    ours, theirs = (side.name for side in sides)
    of = crashes * conversations
    titles = ("until it answers, s", "until the model is asked again, s", "until all conversations are finished, s")
    rows = [
        both(f"kill -9, {title}", seconds[ours][name], seconds[theirs][name])
        for title, name in zip(titles, names, strict=True)
    ]
    title = "kill -9, conversations that go on by themselves"
    return [*rows, Row(title, f"{alone[ours]} of {of}", f"{alone[theirs]} of {of}")]


async def _crash(rig: Rig, side: Side, count: int) -> tuple[tuple[float, float, float], int]:
    """Seconds from the kill on, and how many went on without being asked to."""
    rig.asked.forget()
    async with Clients.of(rig, side) as clients:
        running = await clients.open_all(count, _MODEL)
        await asyncio.gather(*(each.run() for each in running))
        await rig.asked.until(
            lambda calls: len(calls) == 2 * count, within=_WITHIN, what="all are in their second call"
        )
    async with Clients.of(rig, side) as clients:
        killed_at = time.time()
        await side.crash()
        answers_at = time.time()
        try:
            async with asyncio.timeout(_WITHIN):
                asked = await asyncio.gather(*(_see_to_it(clients, each) for each in running))
        except TimeoutError:
            raise BenchError(f"{side.name}: not all were finished within {_WITHIN:g} s of the restart") from None
        done_at = time.time()
    again = _again(rig.asked.calls, killed_at)
    return (answers_at - killed_at, median(again) - killed_at, done_at - killed_at), count - sum(asked)


async def _see_to_it(clients: Clients, conversation: Conversation) -> bool:
    """Look until it is finished, and run it again if it has failed, as a client must; whether that was needed."""
    asked, there = False, conversation.at(clients)
    while (status := await there.status()) != "finished":
        if status == "error":
            asked = True
            await there.run()
        await asyncio.sleep(_LOOK)
    return asked


def _again(calls: Sequence[Call], killed_at: float) -> list[float]:
    """When the model was first asked again, by conversation."""
    first: dict[str, float] = {}
    for call in calls:
        if call.at > killed_at:
            first.setdefault(call.said, call.at)
    return list(first.values())
