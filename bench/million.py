"""Short runs by the hundred thousand through one stack, submitted over its API: what each process grows to, and whether
the last ten thousand are done as fast as the first; then runs of hundreds of steps.

What has ended is kept for some minutes only, so that Redis, too, comes to a size that it stays at.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import orjson

from bench.asked import BenchError
from bench.conversation import INSTRUCTIONS, TOOL
from bench.many_runs import SHORT
from bench.report import Table, number
from bench.rig import Rig
from bench.usage import Usage
from features.stack.ports import HOST

_SLOTS: Final = 100
_TOGETHER: Final = 50
"""Long runs at once."""
_CONNECTIONS: Final = 32
_BATCH: Final = 1_000
"""Runs that are waited for together."""
_RETENTION: Final = 300
"""Seconds that what has ended is kept."""
_WITHIN: Final = 120.0
_NOTE: Final = (
    f"One API, one worker with {_SLOTS} slots, a Redis with its AOF; each run is submitted over HTTP on one of "
    f"{_CONNECTIONS} connections, and what has ended is kept for {_RETENTION} s. Runs/s are of the whole on one "
    "machine, client and model server included; CPU is of the process, for a run of one step."
)


class _Submitter(asyncio.Protocol):
    """A connection on which the same run is submitted again and again, as long as ``more`` says so."""

    def __init__(self, request: bytes, more: Callable[[], bool]) -> None:
        self._request, self._more, self._read = request, more, bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def begin(self) -> None:
        """Submit, until there is no more."""
        self.done = asyncio.get_running_loop().create_future()
        self._next()

    def data_received(self, data: bytes) -> None:
        self._read += data
        head = self._read.find(b"\r\n\r\n")
        if head < 0:
            return
        place = self._read.lower().index(b"content-length: ", 0, head) + 16
        if len(self._read) < head + 4 + int(self._read[place : self._read.index(b"\r", place)]):
            return
        if not self._read.startswith(b"HTTP/1.1 202"):
            self.done.set_exception(BenchError(bytes(self._read[:400]).decode()))
            return
        self._read.clear()
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or BenchError("the API closed the connection"))

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _next(self) -> None:
        if self._more():
            self._transport.write(self._request)
        else:
            self.done.set_result(None)


class _Load:
    """Runs that are submitted over some connections."""

    def __init__(self, url: str, model: str) -> None:
        address = urlsplit(url)
        body = orjson.dumps({"agent": {"model": model}, "input": "hello"})
        head = f"POST /v1/runs HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self._port = address.port or 80
        self._left = 0
        self._submitters: list[_Submitter] = []

    async def connect(self) -> None:
        """Open the connections."""
        loop = asyncio.get_running_loop()
        for _ in range(_CONNECTIONS):
            _, submitter = await loop.create_connection(
                lambda: _Submitter(self._request, self._one_more), HOST, self._port
            )
            self._submitters.append(submitter)

    async def submit(self, runs: int) -> None:
        """Submit so many. Raises BenchError."""
        self._left = runs
        for submitter in self._submitters:
            submitter.begin()
        await asyncio.gather(*(submitter.done for submitter in self._submitters))

    def close(self) -> None:
        """Close them."""
        for submitter in self._submitters:
            submitter.close()

    def _one_more(self) -> bool:
        self._left -= 1
        return self._left >= 0


async def measure(runs: int, every: int, long_runs: int, steps: int) -> list[Table]:
    """Measure so many short runs, a row for ``every`` so many, and then runs of ``steps`` model calls. Raises
    BenchError."""
    columns = ("", "runs/s", "worker CPU ms", "API CPU ms", "Redis CPU ms", "worker MB", "API MB", "Redis MB")
    table = Table(f"One stack through {runs:,} short runs, by the {every:,}", columns, note=_NOTE)
    async with Rig() as rig:
        kept = {"PALAVER_RETENTION": str(_RETENTION), "PALAVER_FEED_RETENTION": "60"}
        worker = rig.start_worker(_SLOTS, kept, "-E", "-l", "INFO")
        url, api = await rig.start_api(**kept)
        await rig.workers_ready(worker)
        pids = {"worker": worker.pid, "api": api.pid, "redis": rig.redis.pid}
        load = _Load(url, f"fake/{SHORT}")
        await load.connect()

        def row(name: str, count: int, began: float, before: dict[str, Usage]) -> None:
            now = {which: Usage.of(pid) for which, pid in pids.items()}
            cpu = [f"{1e3 * (now[which].cpu - before[which].cpu) / count:.2f}" for which in pids]
            table.rows.append(
                (name, number(count / (time.monotonic() - began)), *cpu, *(f"{now[which].rss:.0f}" for which in pids))
            )
            print("|", " | ".join(table.rows[-1]), "|", file=sys.stderr, flush=True)

        for done in range(every, runs + 1, every):
            began, before = time.monotonic(), {which: Usage.of(pid) for which, pid in pids.items()}
            for _ in range(every // _BATCH):
                rig.asked.forget()
                await load.submit(_BATCH)
                await rig.asked.ended(_BATCH, within=_WITHIN, what=f"the short runs up to {done}")
            row(f"{done:,}", every, began, before)
        load.close()
        began, before = time.monotonic(), {which: Usage.of(pid) for which, pid in pids.items()}
        for first in range(0, long_runs, _TOGETHER):
            some = min(_TOGETHER, long_runs - first)
            await rig.ended(
                [
                    await rig.submit(f"tool-{steps - 1}", tools=(TOOL,), instructions=INSTRUCTIONS, max_steps=steps)
                    for _ in range(some)
                ]
            )
        row(f"then {long_runs} runs of {steps} steps", long_runs * steps, began, before)
    return [table]
