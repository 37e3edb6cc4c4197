"""How long after a cancel was asked for the model server sees the connection close, in mid-stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import httpx

from bench.asked import BenchError, Call
from bench.report import Table, percentile
from bench.rig import Rig

_MODEL: Final = "tokens-1200+rate-20"
"""A minute of stream: none ends by itself before it is cancelled."""
_EVERY: Final = 0.03
"""Seconds between two cancels: each meets a worker that is busy with streams, not with other cancels."""
_WITHIN: Final = 30.0


async def measure(cancels: int, in_flight: int) -> list[Table]:
    """Cancel so many runs over HTTP, one after another, while ``in_flight`` other streams go on.

    Raises BenchError when a cancel is refused or a stream is not closed.
    """
    streams = cancels + in_flight
    async with Rig() as rig:
        url = await rig.start_api()
        await rig.workers_ready(rig.start_worker(streams))
        runs = [await rig.submit(_MODEL) for _ in range(streams)]
        await rig.asked.until(lambda calls: len(calls) == streams, within=_WITHIN, what=f"{streams} streams")
        asked_at, answered = await _cancel(url, runs[:cancels])

        def closed(calls: Sequence[Call]) -> bool:
            return all(call.closed_by_client_at for call in calls if call.run in asked_at)

        calls = await rig.asked.until(closed, within=_WITHIN, what=f"{cancels} streams closed")
    seen = [(call.closed_by_client_at or 0.0) - asked_at[call.run] for call in calls if call.run in asked_at]
    table = Table(
        f"Cancel in mid-stream ({cancels} cancels over HTTP, {streams} to {in_flight} streams in flight)",
        ("ms", "p50", "p99", "max"),
        note="From the request on: until the model server sees the worker close the connection, and until the "
        "API has answered.",
    )
    for name, values in (("connection closed", seen), ("cancel acknowledged", answered)):
        numbers = (percentile(values, 50), percentile(values, 99), max(values))
        table.rows.append((name, *(f"{1e3 * number:.1f}" for number in numbers)))
    return [table]


async def _cancel(url: str, runs: Sequence[str]) -> tuple[dict[str, float], list[float]]:
    """When each run's cancel was asked for, and how many seconds each answer took."""
    asked_at: dict[str, float] = {}
    answered: list[float] = []
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=_WITHIN) as client:
        for run in runs:
            asked_at[run] = time.time()
            response = await client.post(f"/v1/runs/{run}/cancel")
            answered.append(time.time() - asked_at[run])
            if response.status_code not in (200, 202):
                raise BenchError(f"the API answered a cancel with {response.status_code}: {response.text[:200]}")
            await asyncio.sleep(_EVERY)
    return asked_at, answered
