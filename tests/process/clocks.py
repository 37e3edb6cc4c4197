"""Processes whose wall clocks are wrong, and jump: a library that is loaded before the C library's own functions.

Only the clock that tells the date is moved; what measures durations goes on as it does when somebody sets a machine's
clock. Ledgers tell the time by CLOCK_REALTIME_COARSE, which stays right.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

COMPILER = shutil.which("cc")
_SOURCE = Path(__file__).with_name("clocks.c")
_OFFSET = struct.Struct("=q")


class Clocks:
    """The wall clocks of all processes that were started with `environment`, and of their children."""

    def __init__(self, folder: Path) -> None:
        library, offsets = folder / "clocks.so", folder / "offsets"
        assert COMPILER is not None
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE], check=True)
        with offsets.open("wb") as table:
            # A process id is below this; the file has holes for all that are never written.
            table.truncate(int(Path("/proc/sys/kernel/pid_max").read_text()) * _OFFSET.size)
        self._offsets = offsets
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "CLOCK_OFFSETS": str(offsets)}

    def move(self, pid: int, seconds: int) -> None:
        """From now on a process is so many seconds ahead; behind, if they are negative."""
        with self._offsets.open("r+b") as table:
            table.seek(pid * _OFFSET.size)
            table.write(_OFFSET.pack(seconds))
