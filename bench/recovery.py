"""How long after a kill -9 of a model worker another one makes the calls again that it was waiting for."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from signal import SIGKILL
from typing import Final

from bench.asked import Call
from bench.report import Table, percentile
from bench.rig import Rig

_MODEL: Final = "tokens-600+rate-10"
"""A minute of stream: none ends by itself before its worker is killed."""
_CAPACITY: Final = 200
_WITHIN: Final = 30.0


async def measure(kills: int, runs: int, lease_seconds: float) -> list[Table]:
    """Kill one of two workers so many times, each time with about half of so many ``runs`` in its hands.

    Raises BenchError when a run is not gone on with.
    """
    took: list[float] = []
    async with Rig(lease_seconds=lease_seconds) as rig:
        workers = [rig.start_worker(_CAPACITY), rig.start_worker(_CAPACITY)]
        for _ in range(kills):
            await rig.workers_ready(*workers)
            rig.asked.forget()
            submitted = [await rig.submit(_MODEL) for _ in range(runs)]
            await rig.asked.until(lambda calls: len(calls) == runs, within=_WITHIN, what=f"{runs} streams")
            # Leases are renewed in beats: let a kill meet them at any age.
            await asyncio.sleep(random.uniform(0.5, 0.5 + lease_seconds / 3))
            killed_at = time.time()
            workers.pop(0).kill(SIGKILL)
            waits: dict[str, float | None] = {}

            def recovered(calls: Sequence[Call], killed_at: float = killed_at) -> bool:
                nonlocal waits
                waits = _waits(calls, killed_at)
                return bool(waits) and None not in waits.values()

            await rig.asked.until(recovered, within=_WITHIN, what="calls of the killed worker, again")
            took += [wait for wait in waits.values() if wait is not None]
            for run in submitted:
                await rig.store.runs.cancel(run)
            workers.append(rig.start_worker(_CAPACITY))
    table = Table(
        f"Recovery after kill -9 of a model worker in the middle of its calls (lease {lease_seconds:g} s)",
        ("s", "p50", "p99", "max", "steps", "kills"),
        note="From the death of the worker until the model server gets the run's call again.",
    )
    seconds = (f"{number:.2f}" for number in (percentile(took, 50), percentile(took, 99), max(took)))
    table.rows.append(("call made again", *seconds, f"{len(took)}", f"{kills}"))
    return [table]


def _waits(calls: Sequence[Call], killed_at: float) -> dict[str, float | None]:
    """For each run whose call the death cut off, the seconds until its next call; None: not yet."""
    waits: dict[str, float | None] = {
        call.run: None for call in calls if call.at < killed_at <= (call.closed_by_client_at or 0.0)
    }
    for call in calls:
        if call.at >= killed_at and call.run in waits and waits[call.run] is None:
            waits[call.run] = call.at - killed_at
    return waits
