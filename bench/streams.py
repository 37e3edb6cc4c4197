"""Many streamed answers of five seconds, all in flight at once in one worker process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.asked import Call
from bench.report import Table, percentile
from bench.rig import Rig
from bench.usage import Usage
from palaver.lifecycle import RunStatus
from palaver.models import Run

_TOKENS: Final = 100
_RATE: Final = 20
"""Tokens a second; each comes as an event of its own."""
_WITHIN: Final = 60.0


async def measure(streams: int) -> list[Table]:
    """Measure with so many streams. Raises BenchError when they do not end."""
    async with Rig() as rig:
        worker = rig.start_worker(streams)
        await rig.workers_ready(worker)
        await rig.submit("echo")
        await rig.asked.until(lambda calls: bool(calls and calls[0].ended_at), within=_WITHIN, what="a run")
        rig.asked.forget()
        before, redis_before = Usage.of(worker.pid), Usage.of(rig.redis.pid)
        runs = [await rig.submit(f"tokens-{_TOKENS}+rate-{_RATE}") for _ in range(streams)]
        peak = 0.0

        def ended(calls: Sequence[Call]) -> bool:
            nonlocal peak
            peak = max(peak, Usage.of(worker.pid).rss)
            return sum(call.ended_at is not None for call in calls) == streams

        calls = await rig.asked.until(ended, within=_WITHIN, what=f"{streams} streams", every=0.1)
        found = await rig.ended(runs)
        after, redis_after = Usage.of(worker.pid), Usage.of(rig.redis.pid)
    took = [(call.ended_at or 0.0) - call.at for call in calls]
    wall = max(call.ended_at or 0.0 for call in calls) - min(call.at for call in calls)
    cpu = after.cpu - before.cpu
    table = Table(
        f"{streams} streams of {_TOKENS / _RATE:g} s in flight in one worker process",
        ("", ""),
        note="Each stream sends an event a token; the worker writes them to the feeds of the runs.",
    )
    table.rows += [
        ("in flight together, at most", f"{_together(calls)}"),
        ("complete, every word of them", f"{sum(map(_whole, found))} of {streams}"),
        ("model calls", f"{len(calls)}"),
        ("a stream took, p50 / p99", f"{percentile(took, 50):.2f} / {percentile(took, 99):.2f} s"),
        ("worker RSS, at most", f"{peak:.0f} MB (before: {before.rss:.0f} MB)"),
        ("worker CPU", f"{cpu:.2f} s, {100 * cpu / wall:.0f} % of one CPU"),
        ("worker CPU an event", f"{1e6 * cpu / streams / _TOKENS:.0f} us"),
        ("Redis CPU", f"{redis_after.cpu - redis_before.cpu:.2f} s"),
    ]
    return [table]


def _whole(run: Run) -> bool:
    return run.status is RunStatus.COMPLETED and len((run.output or "").split()) == _TOKENS


def _together(calls: Sequence[Call]) -> int:
    changes = sorted([(call.at, 1) for call in calls] + [(call.ended_at or 0.0, -1) for call in calls])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
