"""How long after a cancel was asked for the model server sees the connection close, and a Python tool is over."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import httpx

from bench.asked import BenchError, Call
from bench.report import Table, percentile
from bench.rig import PROTOCOLS, Rig
from workers.sources.containment import GRACE

_MODEL: Final = "tokens-1200+rate-20"
"""A minute of stream: none ends by itself before it is cancelled."""
_EVERY: Final = 0.03
"""Seconds between two cancels: each meets a worker that is busy with streams, not with other cancels."""
_WITHIN: Final = 30.0
_CHILDREN: Final = 4


async def measure(cancels: int, in_flight: int, tools: int) -> list[Table]:
    """Cancel so many runs over HTTP, one after another, while ``in_flight`` other streams go on; and so many tools.

    Raises BenchError when a cancel is refused, a stream is not closed or a tool is not ended.
    """
    return [await _streams(cancels, in_flight), await _tools(tools)]


async def _streams(cancels: int, in_flight: int) -> Table:
    streams = cancels + in_flight
    async with Rig(providers=tuple(PROTOCOLS)) as rig:
        url, _ = await rig.start_api()
        await rig.workers_ready(rig.start_worker(streams))
        turns = islice(cycle(PROTOCOLS.items()), streams)
        titles = {await rig.submit(f"{name}/{_MODEL}"): spoken.title for name, spoken in turns}
        runs = list(titles)
        await rig.asked.until(lambda calls: len(calls) == streams, within=_WITHIN, what=f"{streams} streams")
        asked_at, answered = await _cancel(url, runs[:cancels])

        def closed(calls: Sequence[Call]) -> bool:
            return all(call.closed_by_client_at for call in calls if call.run in asked_at)

        calls = await rig.asked.until(closed, within=_WITHIN, what=f"{cancels} streams closed")
    seen: dict[str, list[float]] = {spoken.title: [] for spoken in PROTOCOLS.values()}
    for call in calls:
        if call.run in asked_at:
            seen[titles[call.run]].append((call.closed_by_client_at or 0.0) - asked_at[call.run])
    table = Table(
        f"Cancel in mid-stream ({cancels} cancels over HTTP, {streams} to {in_flight} streams in flight)",
        ("ms", "p50", "p99", "max"),
        note="From the request on: until the model server sees the worker close the connection, and until the "
        "API has answered.",
    )
    closed_in = {f"connection closed, {title}": seconds for title, seconds in seen.items()}
    _fill(table, {**closed_in, "cancel acknowledged": answered})
    return table


async def _tools(cancels: int) -> Table:
    """A run is over when its call is sealed; a tool that does not heed the exception costs its process its life."""
    table = Table(
        f"Cancel of a Python tool ({cancels} each, {_CHILDREN} at a time; the grace is {GRACE:g} s)",
        ("ms", "p50", "p99", "max"),
        note="From the request on: until the run has ended, and until the stubborn tool's process is gone.",
    )
    async with Rig() as rig:
        told = rig.folder / "pids"
        told.touch()
        url, _ = await rig.start_api(PALAVER_TOOLS="bench.tools")
        environment = {"PALAVER_TOOLS": "bench.tools", "BENCH_TOOL_PIDS": str(told)}
        await rig.workers_ready(rig.start_worker(50, environment))
        rig.start_tools(environment)
        for tool in ("heeding", "stubborn"):
            ended, gone = [], []
            for _ in range(0, cancels, _CHILDREN):
                known = len(_pids(told))
                runs = [await rig.submit("tool-1", tools=(tool,)) for _ in range(_CHILDREN)]
                await _until(partial(_told_by, told, known + _CHILDREN), "the tools run")
                asked_at, _ = await _cancel(url, runs)
                pids = _pids(told)[known:]
                ended += [await _ended(rig, run) - asked_at[run] for run in runs]
                if tool == "stubborn":
                    begun = min(asked_at.values())
                    await _until(partial(_all_gone, pids), "the processes are gone")
                    gone.append(time.time() - begun)
            _fill(
                table, {f"{tool}: the run has ended": ended} | ({f"{tool}: its process is gone": gone} if gone else {})
            )
    return table


def _pids(told: Path) -> list[int]:
    return [int(line) for line in told.read_text().split()]


def _told_by(told: Path, count: int) -> bool:
    return len(_pids(told)) == count


def _all_gone(pids: Sequence[int]) -> bool:
    return not any(map(_alive, pids))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def _until(condition: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + _WITHIN
    while not condition():
        if time.monotonic() > give_up_at:
            raise BenchError(f"{what}: not within {_WITHIN:g} s")
        await asyncio.sleep(0.01)


async def _ended(rig: Rig, run_id: str) -> float:
    """When the run ended, by Redis's clock, which is this machine's."""
    give_up_at = time.monotonic() + _WITHIN
    while (ended := (await rig.store.runs.get(run_id)).times.ended_at) is None:
        if time.monotonic() > give_up_at:
            raise BenchError(f"a cancelled run has not ended within {_WITHIN:g} s")
        await asyncio.sleep(0.01)
    return ended.timestamp()


def _fill(table: Table, values: Mapping[str, Sequence[float]]) -> None:
    for name, seconds in values.items():
        numbers = (percentile(seconds, 50), percentile(seconds, 99), max(seconds))
        table.rows.append((name, *(f"{1e3 * number:.1f}" for number in numbers)))


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
