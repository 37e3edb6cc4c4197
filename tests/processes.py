"""Processes of tests: forked, killed with their parent, and whether one has ended."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waited for yet counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def fork_session() -> int:
    """Fork a process in a session of its own that ends with this one: 0 in it, and its id here, once its group can be
    sent signals."""
    parent = os.getpid()
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        os.setsid()
        die_with(parent)
        os.close(reader)
        os.close(writer)
        return 0
    os.close(writer)
    # Nothing comes; it ends as the other one closes it, or has died.
    os.read(reader, 1)
    os.close(reader)
    return pid


def write_to(log: str) -> None:
    """Have all that this process writes in a file, and nothing to read."""
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.dup2(1, 2)


def die_with(parent: int) -> None:
    """Have this process, just forked, killed when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
