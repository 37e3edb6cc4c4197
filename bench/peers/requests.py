"""How long it takes to submit a run, to ask where it is, and to have a text, one request after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from statistics import median
from typing import Final

from bench.peers.peer import Peer, Work
from bench.peers.rows import Row
from bench.rig import Rig

_TEXT: Final = Work("echo", input="Are you there?")
_LOOKS: Final = 5
_IN_A_ROW: Final = 10
_BETWEEN: Final = 0.02
"""Seconds between two submits, in which the run of most peers is over."""
_WITHIN: Final = 30.0
_TITLES: Final = {"submit": "submit", "status": "status", "text": "a run of one call, from the request to its answer"}


async def measure(rig: Rig, peers: Sequence[Peer], *, rounds: int, submits: int, texts: int) -> list[Row]:
    """So many of each in each round.

    Raises:
        BenchError: a peer refuses one.
    """
    del rig
    found: dict[str, dict[str, list[float]]] = {what: {peer.name: [] for peer in peers} for what in _TITLES}
    for turn in range(rounds):
        for peer in [*peers[turn % len(peers) :], *peers[: turn % len(peers)]]:
            times = await _times(peer, submits, texts)
            for what, values in found.items():
                values[peer.name].append(1e3 * median(times[what]))
    return [Row(f"{_TITLES[what]}, p50 ms", values, headline=what == "text") for what, values in found.items()]


async def _times(peer: Peer, submits: int, texts: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {what: [] for what in _TITLES}
    for _ in range(submits // _IN_A_ROW):
        runs = []
        for _ in range(_IN_A_ROW):
            begun = time.perf_counter()
            runs.append(await peer.submit(_TEXT))
            times["submit"].append(time.perf_counter() - begun)
            await asyncio.sleep(_BETWEEN)
        await peer.ended(runs, _WITHIN)
        for run in runs:
            times["status"] += [await _seconds(peer.status(run)) for _ in range(_LOOKS)]
    for _ in range(texts):
        times["text"].append(await _seconds(peer.hold(_TEXT)))
    return times


async def _seconds(asked: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await asked
    return time.perf_counter() - begun
