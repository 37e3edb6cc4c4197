"""How long after a cancel was asked for the model server sees the connection close, in the middle of a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from bench.asked import Call
from bench.report import Table, percentile
from bench.rig import Rig

_MODEL: Final = "tokens-1200+rate-20"
"""A minute of stream: none ends by itself before it is cancelled."""
_EVERY: Final = 0.03
"""Seconds between two cancels: each meets a worker that is busy with streams, not with other cancels."""
_WITHIN: Final = 30.0


async def measure(cancels: int, in_flight: int) -> list[Table]:
    """Cancel so many runs, one after another, while ``in_flight`` other streams go on.

    Raises BenchError when a stream is not closed.
    """
    async with Rig() as rig:
        await rig.workers_ready(rig.start_worker(cancels + in_flight))
        runs = [await rig.submit(_MODEL) for _ in range(cancels + in_flight)]
        await rig.asked.until(lambda calls: len(calls) == len(runs), within=_WITHIN, what=f"{len(runs)} streams")
        asked_at: dict[str, float] = {}
        answered: list[float] = []
        for run in runs[:cancels]:
            asked_at[run] = time.time()
            await rig.store.runs.cancel(run)
            answered.append(time.time() - asked_at[run])
            await asyncio.sleep(_EVERY)

        def closed(calls: Sequence[Call]) -> bool:
            return all(call.closed_by_client_at for call in calls if call.run in asked_at)

        calls = await rig.asked.until(closed, within=_WITHIN, what=f"{cancels} streams closed")
    took = [1e3 * ((call.closed_by_client_at or 0.0) - asked_at[call.run]) for call in calls if call.run in asked_at]
    table = Table(
        f"Cancel in the middle of a stream ({cancels} cancels, {in_flight} to {in_flight + cancels} streams in flight)",
        ("ms", "p50", "p99", "max"),
        note="From the request until the model server sees the worker close the connection.",
    )
    for name, values in (("connection closed", took), ("cancel acknowledged", [1e3 * each for each in answered])):
        table.rows.append((name, *(f"{each:.1f}" for each in (percentile(values, 50), percentile(values, 99), max(values)))))
    return [table]
