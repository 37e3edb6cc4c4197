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
    """Fork a process in a session of its own: 0 in it, and its id in this one, once its group can be sent signals."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        os.setsid()
        os.close(reader)
        os.close(writer)
        return 0
    os.close(writer)
    # Nothing comes; it ends as the other one closes it, or has died.
    os.read(reader, 1)
    os.close(reader)
    return pid


def die_with(parent: int) -> None:
    """Have this process, just forked, killed when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
