"""What a deployment has to have room for: what docs/how-to/sizing.md calculates with."""

from __future__ import annotations

from bench import processes, work
from bench.report import Table


async def measure(scale: int, in_flight: int) -> list[Table]:
    """The cost of runs by what they do, and of a process of each role."""
    return [*await work.measure(scale), *await processes.measure(in_flight)]
