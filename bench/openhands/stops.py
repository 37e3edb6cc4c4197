"""How long after a pause, or an interrupt, the model server sees the connection of the call close."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from bench.asked import BenchError, Call
from bench.openhands.conversations import Clients
from bench.openhands.rows import Row, both
from bench.openhands.sides import Side
from bench.report import spread
from bench.rig import Rig

_MODEL: Final = "tokens-60+rate-20"
"""Three seconds of answer."""
_WITHIN: Final = 30.0
_INTO_IT: Final = 0.3
"""Seconds of the answer before it is stopped."""


Stop = tuple[float | None, str]
"""Seconds until the connection was closed, None if the answer came to its end; and the status that came of it."""


async def measure(rig: Rig, sides: Sequence[Side], *, stops: int) -> list[Row]:
    """Stop so many calls in each way.

    Raises:
        BenchError: a side refuses to stop, or its call never ends.
    """
    rows: list[Row] = []
    for how in ("pause", "interrupt"):
        found: list[list[Stop]] = [[] for _ in sides]
        for _ in range(stops):
            for side, of_side in zip(sides, found, strict=True):
                of_side.append(await _stop(rig, side, how))
        rows.append(_row(how, *found))
        ours, theirs = (_counted([status for _, status in side]) for side in found)
        rows.append(Row(f"{how}: the conversation is then", ours, theirs))
    return rows


async def _stop(rig: Rig, side: Side, how: str) -> Stop:
    async with Clients.of(rig, side) as clients:
        conversation = await clients.open(_MODEL, "hello")
        rig.asked.forget()
        await conversation.run()
        await rig.asked.until(lambda calls: len(calls) == 1, within=_WITHIN, what="a call begins", every=0.005)
        await asyncio.sleep(_INTO_IT)
        asked_at = time.time()
        await conversation.stop(how)
        calls = await rig.asked.until(_over, within=_WITHIN, what="the call is over", every=0.005)
        # Whoever let the answer come to its end takes it in, and may call that the end of the run.
        await asyncio.sleep(_INTO_IT)
        closed_at = calls[0].closed_by_client_at
        return (closed_at - asked_at if closed_at else None), await conversation.status()


def _over(calls: Sequence[Call]) -> bool:
    return bool(calls) and all(call.ended_at for call in calls)


def _row(how: str, ours: Sequence[Stop], theirs: Sequence[Stop]) -> Row:
    what = f"{how}, until the call of the model is closed, ms"
    closed = [[1e3 * seconds for seconds, _ in side if seconds is not None] for side in (ours, theirs)]
    if len(closed[0]) < len(ours):
        raise BenchError(f"Palaver left a call open after {how}")
    if closed[1]:
        return both(what, closed[0], closed[1])
    return Row(what, spread(closed[0]), "never: the answer came to its end")


def _counted(words: Sequence[str]) -> str:
    """Each word, with how often it came."""
    return ", ".join(f"{word} {words.count(word)} of {len(words)}" for word in sorted(set(words)))
