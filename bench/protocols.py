"""What a step costs in each protocol that models are spoken to in: the same conversation on one worker, in turns."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Final

from bench.conversation import INSTRUCTIONS, MODEL, TOOL
from bench.report import Table
from bench.rig import PROTOCOLS, Rig
from bench.steps import Sample, Side, sample

_AT_ONCE: Final = 50


async def measure(rounds: int) -> list[Table]:
    """Measure in so many rounds. Raises BenchError when the work is not done."""
    async with Rig(providers=tuple(PROTOCOLS)) as rig:
        worker = rig.start_worker(_AT_ONCE)
        sides = [
            Side(name, worker, partial(rig.submit, f"{name}/{MODEL}", tools=(TOOL,), instructions=INSTRUCTIONS))
            for name in PROTOCOLS
        ]
        for side in sides:
            await sample(rig, side, in_a_row=1, at_once=_AT_ONCE)
        found: dict[str, list[Sample]] = {name: [] for name in PROTOCOLS}
        for turn in range(rounds):
            begin = turn % len(sides)
            for side in sides[begin:] + sides[:begin]:
                found[side.name].append(await sample(rig, side, in_a_row=1, at_once=_AT_ONCE))
    table = Table(
        f"A step in each protocol, {_AT_ONCE} runs at once ({rounds} times)",
        ("", "CPU ms a step", "ratio", "Redis CPU ms a step", "steps/s"),
        note="CPU is the worker process's, user and system. Medians; ratios are to chat completions, by rounds.",
    )
    first = next(iter(found.values()))
    for name, samples in found.items():
        table.rows.append((
            PROTOCOLS[name].title,
            f"{1e3 * median(each.cpu for each in samples):.2f}",
            f"{median(each.cpu / other.cpu for each, other in zip(samples, first, strict=True)):.2f}",
            f"{1e3 * median(each.redis_cpu for each in samples):.2f}",
            f"{median(each.rate for each in samples):.0f}",
        ))  # fmt: skip
    return [table]
