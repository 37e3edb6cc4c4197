"""How long after a cancel the model server sees the connection of its call close."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from bench.peers.peer import Peer, Work
from bench.peers.rows import Row, Values
from bench.rig import Rig

_ANSWER: Final = Work("tokens-100+rate-20")
"""Five seconds of it."""
_INTO_IT: Final = 0.3
"""Seconds of the answer before it is stopped."""
_WITHIN: Final = 30.0


async def measure(rig: Rig, peers: Sequence[Peer], *, stops: int) -> list[Row]:
    """Stop so many runs of each; whoever lets the answer come to its end is not asked again.

    Raises:
        BenchError: a peer refuses to stop, or never begins.
    """
    closed: dict[str, Values] = {}
    for peer in peers:
        times: list[float] = []
        for _ in range(stops):
            seconds = await _stop(rig, peer)
            if seconds is None:
                closed[peer.name] = "never: the answer came to its end"
                break
            times.append(1e3 * seconds)
        else:
            closed[peer.name] = times
    return [Row("cancel, until the call of the model is closed, ms", closed, headline=True)]


async def _stop(rig: Rig, peer: Peer) -> float | None:
    rig.asked.forget()
    run = await peer.submit(_ANSWER)
    await rig.asked.until(lambda calls: len(calls) == 1, within=_WITHIN, what=f"{peer.name}: a call", every=0.005)
    await asyncio.sleep(_INTO_IT)
    asked_at = time.time()
    await peer.cancel(run)
    calls = await rig.asked.until(
        lambda found: all(call.ended_at for call in found), within=_WITHIN, what="the call is over", every=0.005
    )
    closed_at = calls[0].closed_by_client_at
    return closed_at - asked_at if closed_at else None
