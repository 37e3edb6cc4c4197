"""Many slow streams at once: what a piece costs, and whether any of them is held up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bench.asked import BenchError
from bench.peers.peer import Peer, Work
from bench.peers.rows import Row, Values
from bench.rig import Rig
from bench.usage import Usage

_TOKENS: Final = 100
_RATE: Final = 10
"""Tokens a second, each in a piece of its own."""
_WITHIN: Final = 60.0
_AFTERMATH: Final = 0.3


async def measure(rig: Rig, peers: Sequence[Peer], *, rounds: int, streams: int) -> list[Row]:
    """So many in each round; peers that one after the other have the machine.

    Raises:
        BenchError: a peer has not all of them answered.
    """
    wall: dict[str, list[float]] = {peer.name: [] for peer in peers}
    cpu: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for turn in range(rounds):
        for peer in [*peers[turn % len(peers) :], *peers[: turn % len(peers)]]:
            rig.asked.forget()
            before = Usage.of(*peer.pids.values()).cpu
            runs = await asyncio.gather(*(peer.submit(Work(f"tokens-{_TOKENS}+rate-{_RATE}")) for _ in range(streams)))
            calls = await rig.asked.until(
                lambda found: sum(call.ended_at is not None for call in found) == streams,
                within=_WITHIN,
                what=f"{peer.name}: {streams} streams",
                every=0.1,
            )
            await asyncio.sleep(_AFTERMATH)
            used = Usage.of(*peer.pids.values()).cpu - before
            if (completed := await peer.ended(runs, _WITHIN)) != streams:
                raise BenchError(f"{peer.name}: {completed} of {streams} streams are completed")
            wall[peer.name].append(max(call.ended_at or 0.0 for call in calls) - min(call.at for call in calls))
            cpu[peer.name].append(1e6 * used / streams / _TOKENS)
    ideal = f"(ideal {_TOKENS / _RATE:g})"
    return [
        Row(f"{streams} slow streams: all of them take, s {ideal}", dict[str, Values](wall)),
        Row(f"{streams} slow streams: CPU us a piece", dict[str, Values](cpu), headline=True),
    ]
