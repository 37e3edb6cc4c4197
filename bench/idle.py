"""What everything that `palaver up` starts holds in memory while nothing is to be done."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.report import Table, number
from bench.usage import Usage, proportional
from features.stack.child import ChildCommand
from features.stack.ports import VARIABLES, Ports
from palaver.processes.process_tree import children_of

_WITHIN: Final = 60.0
_REST: Final = 3.0
"""Seconds in which what was just started comes to rest."""
_ROLES: Final = {
    "redis": "-server ",
    "api": " -m api",
    "worker": " -Q model",
    "tools": " -Q tools",
    "flower": " flower ",
    "model server": ".fake_provider",
}
"""What the command of each has in it, and no other's before it."""
_FOUR: Final = ("redis", "api", "worker", "tools")
"""What runs lean on; Flower is for people, `palaver up` for one machine, the model server to play with."""


async def measure() -> list[Table]:
    """Start it, leave it alone, and look."""
    with tempfile.TemporaryDirectory() as folder:
        up = _started(Path(folder))
        try:
            up.wait_until_ready(time.monotonic() + _WITHIN)
            await asyncio.sleep(_REST)
            found = {_role(pid): (Usage.of(pid).rss, proportional(pid)) for pid in children_of(up.pid)}
            below = [sum(column) for column in zip(*found.values(), strict=True)]
            found["palaver up"] = (Usage.of(up.pid).rss - below[0], proportional(up.pid) - below[1])
        finally:
            up.terminate()
            up.reap(time.monotonic() + _WITHIN)
    table = Table(
        "The whole stack, idle",
        ("", "RSS MB", "PSS MB"),
        note="As `palaver up` starts it, before the first run; the model server is in no sum. RSS counts a page that "
        "several processes share once for each, PSS once in all.",
    )
    table.rows += [(name, number(rss), number(pss)) for name, (rss, pss) in found.items()]
    for title, names in (("redis, api, worker and tools", _FOUR), ("all", found.keys() - {"model server"})):
        table.rows.append((title, *(number(sum(found[name][column] for name in names)) for column in (0, 1))))
    return [table]


def _started(folder: Path) -> ChildCommand:
    free = Ports.free()
    ports = {variable: str(getattr(free, name)) for name, variable in VARIABLES.items()}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    up = ChildCommand(
        "up",
        (sys.executable, "-m", "palaver.cli", "up"),
        environment={**clean, **ports, "PALAVER_DATA_DIR": str(folder / "data")},
        log_path=folder / "up.log",
        ready=lambda child: "Palaver is up." in child.output,
    )
    up.start()
    return up


def _role(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return next(role for role, part in _ROLES.items() if part in command)
