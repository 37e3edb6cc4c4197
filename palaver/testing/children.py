"""Processes that do not outlive the one that started them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

_EXEC_DYING_WITH_PARENT: Final = """\
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """`command`, wrapped so that the kernel kills it when the calling thread's process goes away.

    The wrapper becomes the command (same process id). Linux ties this to the *thread* that starts the
    process: start from the main thread or from one that lives as long. Elsewhere the command comes back
    unchanged.
    """
    if sys.platform != "linux":
        return [*command]
    return [sys.executable, "-I", "-S", "-c", _EXEC_DYING_WITH_PARENT, str(os.getpid()), *command]
