"""Processes of tests: whether one has ended, and that one ends with its parent."""

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


def die_with(parent: int) -> None:
    """Have this process, just forked, killed when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
