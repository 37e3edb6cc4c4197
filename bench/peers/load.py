"""How long a step takes alone, how many there are in a second with 50 runs at once, and what they cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.asked import BenchError, Call
from bench.conversation import CALLS
from bench.peers.peer import Peer, Work
from bench.peers.rows import Row
from bench.rig import Rig
from bench.usage import Usage

WORK: Final = Work("tool-20", "add")
_AT_ONCE: Final = 50
_ALONE: Final = 5
"""Runs, one after the other."""
_WITHIN: Final = 120.0
_AFTERMATH: Final = 0.3
"""Seconds in which the last step is written down."""


@dataclass(frozen=True)
class Sample:
    """A round of one peer."""

    alone: float
    """Seconds a step of one run."""
    rate: float
    """Steps a second of many runs."""
    cpu: float
    """Seconds of CPU a step, of many runs."""
    rss: float
    questions: frozenset[str]


async def measure(rig: Rig, peers: Sequence[Peer], *, rounds: int) -> list[Row]:
    """So many rounds, in each of which every peer does the work once; another begins each time.

    Raises:
        BenchError: a peer does not do the work, or does other work.
    """
    samples: dict[str, list[Sample]] = {peer.name: [] for peer in peers}
    for peer in peers:
        await _calls(rig, peer, 1)
    for turn in range(rounds):
        for peer in [*peers[turn % len(peers) :], *peers[: turn % len(peers)]]:
            samples[peer.name].append(await _sample(rig, peer))
    if len({sample.questions for found in samples.values() for sample in found}) != 1:
        raise BenchError("the peers did not ask the model the same questions")
    return [
        Row(
            "ms a step, one run",
            {name: [1e3 * each.alone for each in found] for name, found in samples.items()},
            headline=True,
        ),
        Row(
            f"steps/s, {_AT_ONCE} runs",
            {name: [each.rate for each in found] for name, found in samples.items()},
            more=True,
            headline=True,
        ),
        Row(
            f"CPU ms a step, {_AT_ONCE} runs",
            {name: [1e3 * each.cpu for each in found] for name, found in samples.items()},
            headline=True,
        ),
        Row(
            f"RSS MB after {_AT_ONCE} runs",
            {name: [each.rss for each in found] for name, found in samples.items()},
            headline=True,
        ),
    ]


async def _sample(rig: Rig, peer: Peer) -> Sample:
    spans = []
    for _ in range(_ALONE):
        calls, _ = await _calls(rig, peer, 1)
        spans.append((calls[-1].ended_at or 0.0) - calls[0].at)
    before = {name: Usage.of(pid).cpu for name, pid in peer.pids.items()}
    calls, begun = await _calls(rig, peer, _AT_ONCE)
    await asyncio.sleep(_AFTERMATH)
    after = {name: Usage.of(pid) for name, pid in peer.pids.items()}
    steps = _AT_ONCE * CALLS
    return Sample(
        alone=median(spans) / CALLS,
        rate=steps / (max(call.ended_at or 0.0 for call in calls) - begun),
        cpu=sum(usage.cpu - before[name] for name, usage in after.items()) / steps,
        rss=sum(usage.rss for usage in after.values()),
        questions=frozenset(call.digest for call in calls),
    )


async def _calls(rig: Rig, peer: Peer, many: int) -> tuple[list[Call], float]:
    """The calls of so many runs, and when the first was submitted."""
    rig.asked.forget()
    begun = time.time()
    runs = await asyncio.gather(*(peer.submit(WORK) for _ in range(many)))
    calls = await rig.asked.until(
        lambda found: sum(call.ended_at is not None for call in found) >= many * CALLS,
        within=_WITHIN,
        what=f"{peer.name}: {many} runs",
    )
    completed = await peer.ended(runs, _WITHIN)
    if (len(rig.asked.calls), completed) != (many * CALLS, many):
        raise BenchError(
            f"{peer.name}: {many * CALLS} calls and {many} completed runs expected, not {len(calls)} and {completed}"
        )
    return calls, begun
