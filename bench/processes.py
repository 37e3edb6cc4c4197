"""What a process of each role takes while it does nothing, and with a thousand runs in flight."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.asked import BenchError
from bench.report import Table
from bench.rig import Rig
from bench.usage import Usage
from features.stack.child import ChildCommand
from features.stack.ports import HOST
from palaver.processes.process_tree import below

_STREAM: Final = "tokens-600+rate-15"
"""Forty seconds: long enough to submit a thousand, to watch them and to look."""
_WITHIN: Final = 120.0
_LISTENING: Final = 1.0
"""Seconds for a process that was just started, or just left alone, to come to rest."""


async def measure(runs: int) -> list[Table]:
    """Start a process of each role, look, and look again while so many runs are in flight and watched over HTTP."""
    table = Table(
        f"A process of each role, idle and with {runs:,} runs in flight",
        ("", "RSS MB", "connections to Redis", "descriptors", "RSS MB", "connections to Redis", "descriptors"),
        note=f"Idle on the left, with {runs:,} streamed runs on the right: all in one worker, each watched by one "
        "client of the API. Children are counted in; pages that a process shares with its children are counted once "
        "for each.",
    )
    async with Rig() as rig:
        url, api = await rig.start_api()
        own = {"PALAVER_TOOLS": "bench.tools"}
        worker, tools = rig.start_worker(runs, own, "-E"), rig.start_tools(own, "-E")
        flower = rig.start(
            "workers", "-A", "workers.broker.celery_app", "flower", f"--address={HOST}", "--port=0", "--read-only"
        )
        await rig.workers_ready(worker)
        await rig.ended([await rig.submit("parallel-4", tools=("add",))])
        rig.asked.forget()
        await asyncio.sleep(_LISTENING)
        roles = {"api": api, "worker": worker, "tools, 4 children": tools, "flower": flower}
        idle = {name: _look(child, rig.redis.port) for name, child in roles.items()}
        submitted = [await rig.submit(_STREAM) for _ in range(runs)]
        await rig.asked.until(
            lambda calls: sum(call.ended_at is None for call in calls) == runs, within=_WITHIN, what=f"{runs} in flight"
        )
        watchers = [asyncio.create_task(_watch(url, run_id)) for run_id in submitted]
        await asyncio.sleep(2 * _LISTENING)
        busy = {name: _look(child, rig.redis.port) for name, child in roles.items()}
        seen = sum(await asyncio.wait_for(asyncio.gather(*watchers), _WITHIN))
    if seen != runs:
        raise BenchError(f"{runs - seen} of {runs} watchers have not seen the end of their run")
    table.rows += [(name, *idle[name], *busy[name]) for name in roles]
    return [table]


def _look(child: ChildCommand, redis_port: int) -> tuple[str, str, str]:
    pids = [child.pid, *below(child.pid)]
    descriptors = [each for pid in pids for each in _descriptors(pid)]
    to_redis = _sockets_to(redis_port)
    return (
        f"{Usage.of(child.pid).rss:.0f}",
        f"{len(to_redis.intersection(descriptors))}",
        f"{len(descriptors)}",
    )


def _descriptors(pid: int) -> Sequence[str]:
    """What each file descriptor of a process is."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(entry))
    return found


def _sockets_to(port: int) -> set[str]:
    """Sockets that are connected to this port of the machine, as descriptors name them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if int(row[2].rpartition(":")[2], 16) == port}


async def _watch(url: str, run_id: str) -> bool:
    """Follow a run as a client does; whether its end was seen."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        head = (f"GET /v1/runs/{run_id}/events HTTP/1.1", f"Host: {host}:{port}", "Accept: text/event-stream")
        writer.write("\r\n".join([*head, "Connection: close", "", ""]).encode())
        last = b""
        while piece := await reader.read(65536):
            last = (last + piece)[-4096:]
        return b"event: run.finished" in last
    finally:
        writer.close()
