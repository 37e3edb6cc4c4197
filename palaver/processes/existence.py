"""Proof that a process of this machine has ended: its kernel knows, whatever else seems to be so.

Only Linux has it. Elsewhere, and of another machine or another container, nothing is proven.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Final

_ENDED: Final = "ZX"
"""States of a process that has closed all that it had open, and that its parent has not been told of yet."""


def named_processes(*pids: int) -> str:
    """Name processes of this machine so that `have_ended` knows them, in any other process; empty if it cannot."""
    kernel = _kernel()
    return f"{','.join(map(str, pids))} {kernel}" if kernel else ""


def have_ended(processes: str) -> bool:
    """Tell whether it is certain that each of these processes has ended.

    They have to be of this kernel, since it started, and of a namespace in which their ids mean the same here. An id
    that another process has by now proves nothing.
    """
    pids, _, kernel = processes.partition(" ")
    return bool(kernel) and kernel == _kernel() and all(_has_ended(int(pid)) for pid in pids.split(","))


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        # Behind the name, which may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in _ENDED
    except (OSError, IndexError):
        return False


@cache
def _kernel() -> str:
    """Where process ids mean the same: this host name, this start of its kernel, this namespace. None of them alone
    would do: a machine that is copied has the start of its kernel twice, and containers share a kernel."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{platform.node()} {started} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
