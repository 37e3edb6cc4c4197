"""Many streamed answers, all in flight at once in one worker process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from bench import pouring
from bench.asked import BenchError, Call
from bench.report import Table, percentile
from bench.rig import Rig
from bench.usage import Usage
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus

_RATE: Final = 20
"""Tokens a second; each comes as a chunk of its own."""
_WITHIN: Final = 120.0
_AFTERMATH: Final = 1.0
"""Seconds in which what has ended is settled."""


async def measure(streams: int, seconds: int) -> list[Table]:
    """Measure with so many streams of so many seconds. Raises BenchError when they do not end."""
    tokens = seconds * _RATE
    async with Rig(model_server="bench.pouring") as rig:
        # All at once, when the worker comes: those submitted one by one to one that is there would not all overlap.
        runs = [await rig.submit(f"tokens-{tokens}+rate-{_RATE}") for _ in range(streams)]
        worker = rig.start_worker(streams)
        processes = (worker.pid, rig.redis.pid, rig.model_server.pid)
        before = [Usage.of(pid) for pid in processes]
        peak = 0.0

        def ended(calls: Sequence[Call]) -> bool:
            nonlocal peak
            peak = max(peak, Usage.of(worker.pid).rss)
            return sum(call.ended_at is not None for call in calls) == streams

        calls = await rig.asked.until(ended, within=_WITHIN, what=f"{streams} streams", every=0.5)
        await asyncio.sleep(_AFTERMATH)
        after = [Usage.of(pid) for pid in processes]
        found = await rig.ended(runs)
        said = pouring.text(tokens)
    took = [(call.ended_at or 0.0) - call.at for call in calls]
    lasted = [(_known(run.times.ended_at) - _known(run.times.started_at)).total_seconds() for run in found]
    wall = max(call.ended_at or 0.0 for call in calls) - min(call.at for call in calls)
    cpu, redis_cpu, fake_cpu = (late.cpu - early.cpu for late, early in zip(after, before, strict=True))
    chunks = streams * tokens
    table = Table(
        f"{streams:,} streams of {seconds} s, {_RATE} tokens a second, in flight in one worker process",
        ("", ""),
        note="Each stream sends a chunk a token; the worker writes them to the feeds of the runs, those of some time "
        "together. A stream is timed by the model server, a run from its claim until it is settled. The worker's CPU "
        "has its start in it, and all other work for the runs.",
    )
    table.rows += [
        ("in flight together, at most", f"{_together(calls):,}"),
        ("complete, word for word", f"{sum(_whole(run, said) for run in found):,} of {streams:,}"),
        ("model calls", f"{len(calls):,}"),
        ("a stream took, p50 / p99", f"{percentile(took, 50):.2f} / {percentile(took, 99):.2f} s"),
        ("a run took, p50 / p99", f"{percentile(lasted, 50):.2f} / {percentile(lasted, 99):.2f} s"),
        ("worker RSS, at most", f"{peak:.0f} MB"),
        ("worker CPU", f"{cpu:.2f} s, {100 * cpu / wall:.0f} % of one CPU"),
        ("worker CPU a chunk", f"{1e6 * cpu / chunks:.1f} us"),
        ("Redis CPU a chunk", f"{1e6 * redis_cpu / chunks:.1f} us"),
        ("model server CPU a chunk", f"{1e6 * fake_cpu / chunks:.1f} us"),
    ]
    return [table]


def _known(at: datetime | None) -> datetime:
    if at is None:
        raise BenchError("a run that has ended says when")
    return at


def _whole(run: Run, said: str) -> bool:
    return run.status is RunStatus.COMPLETED and run.output == said


def _together(calls: Sequence[Call]) -> int:
    changes = sorted([(call.at, 1) for call in calls] + [(call.ended_at or 0.0, -1) for call in calls])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
