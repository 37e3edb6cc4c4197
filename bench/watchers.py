"""What an event costs the API for each client that watches its run: one run with few and many, and many runs.

No worker has the runs: this process leases them and writes their deltas, at an even pace, so that the API's CPU is
that of watching. The clients (`bench/listening.py`) are a process of their own.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

import orjson

from bench.asked import BenchError
from bench.leasing import lease
from bench.listening import END
from bench.report import Table, spread
from bench.rig import Rig
from bench.usage import Usage
from bench.wires import WIRES, begun
from features.stack.child import ChildCommand
from palaver.steps.leases import Delta, Lease

_WITHIN: Final = 60.0
_SETTLING: Final = 0.5
"""Seconds in which those who have begun read what there is."""
_TEXT: Final = " and so on"


class Crowd(NamedTuple):
    """So many runs, watched by so many each; every so many seconds each has one more delta."""

    runs: int
    watchers: int
    every: float


CROWDS: Final = (Crowd(1, 1, 0.002), Crowd(1, 10, 0.004), Crowd(1, 100, 0.04), Crowd(100, 1, 0.04))


class Watched(NamedTuple):
    """What an event took for one of its watchers: us of the API's CPU; and the frames that came for each."""

    cpu: float
    frames: float


async def measure(rounds: int, events: int) -> list[Table]:
    """Measure each crowd in so many rounds, with so many deliveries of events. Raises BenchError when one is lost."""
    found: dict[tuple[Crowd, str], list[Watched]] = {(crowd, wire): [] for crowd in CROWDS for wire in WIRES}
    async with Rig() as rig:
        url, api = await rig.start_api()
        for crowd, wire in found:
            await watched(rig, url, api, crowd, events // 10, wire)
        for _ in range(rounds):
            for (crowd, wire), samples in found.items():
                samples.append(await watched(rig, url, api, crowd, events, wire))
    table = Table(
        f"An event that is watched, server-sent ({rounds} times {events:,} deliveries)",
        ("runs", "watchers of each", "wire", "API CPU us an event and watcher", "of native", "frames an event"),
        note="Deltas of a model's text, at an even pace; the wires in turns, and each beside native in the same turn. "
        "Fewer frames than events: a watcher that was behind got several deltas as one.",
    )
    for (crowd, wire), each in found.items():
        frames = median(sample.frames for sample in each)
        cpu = [sample.cpu for sample in each]
        beside = [mine / native.cpu for mine, native in zip(cpu, found[crowd, WIRES[0]], strict=True)]
        numbers = (f"{crowd.runs}", f"{crowd.watchers}", wire)
        table.rows.append((*numbers, spread(cpu), spread(beside) if wire != WIRES[0] else "1", f"{frames:.2f}"))
    return [table]


async def watched(rig: Rig, url: str, api: ChildCommand, crowd: Crowd, events: int, wire: str) -> Watched:
    """Have runs watched over a wire until so many events were delivered. Raises BenchError."""
    runs = [await begun(rig, url, wire) for _ in range(crowd.runs)]
    leases = [await lease(rig.store, each.delivery) for each in runs]
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.listening", url.rpartition(":")[2], str(crowd.watchers)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(orjson.dumps([tuple(each.request) for each in runs]))
    client.stdin.write_eof()
    try:
        async with asyncio.timeout(_WITHIN):
            if await client.stdout.readline() != b"began\n":
                raise BenchError("the watchers did not begin")
            await asyncio.sleep(_SETTLING)
            before = Usage.of(api.pid)
            times = max(2, events // (crowd.runs * crowd.watchers))
            await _write(rig, leases, times, crowd.every)
            name, _, frames = (await client.stdout.readline()).partition(b" ")
            after = Usage.of(api.pid)
    except TimeoutError:
        client.kill()
        raise BenchError(f"{wire}, {crowd}: not all watchers had the last event within {_WITHIN:g} s") from None
    await client.wait()
    if name != b"frames":
        raise BenchError(f"{wire}, {crowd}: the watchers ended")
    delivered = times * crowd.runs * crowd.watchers
    # Each has had what was there when it began, too: three events or so.
    return Watched(1e6 * (after.cpu - before.cpu) / delivered, int(frames) / delivered)


async def _write(rig: Rig, leases: Sequence[Lease], times: int, every: float) -> None:
    due = time.perf_counter()
    for number in range(times):
        text = END if number == times - 1 else _TEXT
        await rig.store.steps.write_deltas([Delta(each, text) for each in leases])
        due += every
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
