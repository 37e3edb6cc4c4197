"""Processes below another one: measured, and ended. Elsewhere than on Linux there are none."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from palaver.late import dataclass
from palaver.processes.process_tree import below, children_of

_PR_SET_CHILD_SUBREAPER: Final = 36
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = os.sysconf("SC_CLK_TCK")
_ROUNDS: Final = 50
"""Looks for processes that are still there, while those that are being ended may start others."""


@dataclass(frozen=True, slots=True)
class Use:
    """The resources that processes use."""

    cpu: float = 0.0
    """Seconds, since they began."""
    memory: int = 0
    """Bytes, resident; what processes share counts for each of them."""


def adopt_orphans() -> None:
    """From here on a process below this one whose parent ends becomes this one's child: none gets away."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def use_of(pid: int) -> Use:
    """Return the resources that a process and all below it use; those that are gone count for nothing."""
    cpu, memory = 0, 0
    for process in (pid, *below(pid)):
        with contextlib.suppress(OSError):
            # The name, in brackets, may have spaces and brackets of its own.
            fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
            cpu += int(fields[11]) + int(fields[12])
            memory += int(fields[21]) * _PAGE
    return Use(cpu / _TICK, memory)


def memory_of(pid: int) -> int:
    """Bytes that a process and all below it use, where pages that some share count once. Ten times the work of
    `use_of`."""
    memory = 0
    for process in (pid, *below(pid)):
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{process}/smaps_rollup").read_bytes()
            memory += int(rollup.partition(b"\nPss:")[2].split(None, 1)[0]) << 10
    return memory


def kill(pids: list[int]) -> None:
    """SIGKILL to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def has_children() -> bool:
    """Tell whether this process has any child, dead or alive. Costs next to nothing."""
    if sys.platform != "linux":
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def end_below(*, keep: frozenset[int] = frozenset()) -> int:
    """SIGKILL to every process below this one, and collect the dead; return their number.

    The children ``keep`` stay, and what is below them. A process that is stopped, or deaf to every signal, ends all
    the same.
    """
    ended: set[int] = set()
    for _ in range(_ROUNDS):
        own = [child for child in children_of(os.getpid()) if child not in keep]
        if not own:
            break
        ended |= end_children(own)
        if any(os.path.exists(f"/proc/{child}") for child in own):
            time.sleep(0.002)
    return len(ended)


def end_children(own: list[int]) -> set[int]:
    """SIGKILL to these children and all below them, and collect those that are dead already; whom it was sent to."""
    kill(pids := [process for child in own for process in (child, *below(child))])
    for child in own:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
    return set(pids)


def session_of(pid: int) -> int | None:
    """The session of a process; None if it is gone."""
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return None
