"""The configuration of the embedded Redis in production: what `deploy/redis.conf` says, and room that fits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_LINES: Final = (
    "appendonly yes",
    "appendfsync everysec",
    "no-appendfsync-on-rewrite no",
    "aof-load-truncated yes",
    'save ""',
    "repl-backlog-size 64mb",
    "maxmemory-policy noeviction",
    "lazyfree-lazy-expire yes",
    "lazyfree-lazy-user-del yes",
    "lazyfree-lazy-server-del yes",
    "protected-mode yes",
    "tcp-keepalive 60",
    "timeout 0",
    "maxclients 10000",
    "client-output-buffer-limit pubsub 32mb 8mb 60",
    "slowlog-log-slower-than 10000",
)
SHARE: Final = 0.4
"""The part of the machine's memory: a rewrite of its file may take half as much again, and processes want the rest."""
_LEAST: Final = 64
_MIB: Final = 1 << 20


def redis_config(mebibytes: int | None) -> Sequence[str]:
    """Return the lines, for a server that holds so much, or its share of this machine."""
    return (*_LINES, f"maxmemory {room_of(mebibytes)}mb")


def room_of(mebibytes: int | None) -> int:
    """Return what a server may hold, in MiB: that, or its share of this machine."""
    return mebibytes or max(_LEAST, int(machine_memory() * SHARE) // _MIB)


def machine_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory of this machine, or those that its container has of it."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _limits(root):
        # There is none where the file says "max".
        with suppress(OSError, ValueError):
            found.append(int(limit.read_text()))
    return min(found)


def _limits(root: Path) -> Sequence[Path]:
    """Files with limits of the groups that this process is in, of both versions of cgroups."""
    groups = root / "sys/fs/cgroup"
    limits = [groups / "memory.max", groups / "memory/memory.limit_in_bytes"]
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                limits += [folder / "memory.max" for folder in _upwards(groups, path)]
            elif "memory" in controllers.split(","):
                limits += [folder / "memory.limit_in_bytes" for folder in _upwards(groups / "memory", path)]
    return limits


def _upwards(groups: Path, path: str) -> Sequence[Path]:
    parts = [part for part in path.split("/") if part and part != ".."]
    return [groups.joinpath(*parts[:count]) for count in range(len(parts) + 1)]
