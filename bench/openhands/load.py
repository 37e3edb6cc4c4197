"""Steps a second, and what a step costs, while so many conversations run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.asked import BenchError
from bench.openhands.conversations import Clients, run_all
from bench.openhands.rows import Row, both
from bench.openhands.sides import Side
from bench.rig import Rig
from bench.usage import Usage

MODEL: Final = "tool-20+use-think"
CALLS: Final = 21
"""Of the model: each but the last one asks for `think`, a tool that costs nothing and that both sides have."""
_ALONE_IN_A_ROW: Final = 5
"""How often one conversation alone is run in a round: it is over too soon to be measured once."""
_AFTERMATH: Final = 0.3


@dataclass(frozen=True, slots=True)
class Sample:
    """What one round came to."""

    rate: float
    """Steps a second."""
    cpu: float
    """Seconds of CPU a step, all processes of the side."""
    rss: float


async def measure(rig: Rig, sides: Sequence[Side], *, at_once: Sequence[int], rounds: int) -> list[Row]:
    """One side after the other, in so many rounds.

    Raises:
        BenchError: a side does not do the work, or does other work.
    """
    samples: dict[tuple[int, str], list[Sample]] = {(many, side.name): [] for many in at_once for side in sides}
    for side in sides:
        await _sample(rig, side, 2, 1)
    for _ in range(rounds):
        for many in at_once:
            for side in sides:
                in_a_row = _ALONE_IN_A_ROW if many == 1 else 1
                samples[many, side.name].append(await _sample(rig, side, many, in_a_row))
    rows: list[Row] = []
    for many in at_once:
        ours, theirs = (samples[many, side.name] for side in sides)
        what = f"{many} conversations at once" if many > 1 else "1 conversation"
        rows += [
            both(f"{what}: steps/s", *([each.rate for each in side] for side in (ours, theirs)), more=True),
            both(f"{what}: CPU ms a step", *([1e3 * each.cpu for each in side] for side in (ours, theirs))),
        ]
    resident = [
        [each.rss for (_, name), found in samples.items() if name == side.name for each in found] for side in sides
    ]
    rows.append(both("memory, all processes, MB", *resident))
    return rows


async def _sample(rig: Rig, side: Side, many: int, in_a_row: int) -> Sample:
    seconds = 0.0
    async with Clients.of(rig, side) as clients:
        opened = [await clients.open_all(many, MODEL) for _ in range(in_a_row)]
        rig.asked.forget()
        before = Usage.of(*side.pids)
        for conversations in opened:
            seconds += await run_all(conversations)
        await asyncio.sleep(_AFTERMATH)
        after = Usage.of(*side.pids)
    calls, steps = len(rig.asked.calls), many * in_a_row * CALLS
    if calls != steps:
        raise BenchError(f"{side.name}: {steps} calls of the model expected, not {calls}")
    return Sample(steps / seconds, (after.cpu - before.cpu) / steps, after.rss)
