"""What the processes of each peer hold, and use, while nothing is to be done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from bench.peers.peer import Peer
from bench.peers.rows import Row
from bench.rig import Rig
from bench.usage import Usage

_REST: Final = 1.0
"""Seconds in which what has been done comes to rest."""


async def measure(rig: Rig, peers: Sequence[Peer], *, seconds: float) -> list[Row]:
    """Look at all of them, and again after so many seconds."""
    del rig
    await asyncio.sleep(_REST)
    before, begun = {peer.name: _looked(peer) for peer in peers}, time.monotonic()
    await asyncio.sleep(seconds)
    after, took = {peer.name: _looked(peer) for peer in peers}, time.monotonic() - begun
    return [
        Row(
            "idle: RSS MB",
            {name: [sum(each.rss for each in found.values())] for name, found in after.items()},
            headline=True,
        ),
        Row(
            "idle: CPU ms a second",
            {name: [1e3 * (_cpu(found) - _cpu(before[name])) / took] for name, found in after.items()},
        ),
    ]


def _looked(peer: Peer) -> Mapping[str, Usage]:
    return {name: Usage.of(pid) for name, pid in peer.pids.items()}


def _cpu(found: Mapping[str, Usage]) -> float:
    return sum(each.cpu for each in found.values())
