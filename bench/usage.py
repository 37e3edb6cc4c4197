"""CPU time and memory of a process and everything below it, from /proc. Linux only."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes have used so far."""

    cpu: float
    """Seconds, user and system, of living and of reaped processes."""
    rss: float
    """MB resident now; pages shared by a parent and its children are counted once for each."""

    @classmethod
    def of(cls, *pids: int) -> Self:
        """Of these processes and their descendants. Raises FileNotFoundError for one that is gone."""
        cpu = rss = 0.0
        for pid in pids:
            cpu += _cpu(pid)
            rss += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6
            below = cls.of(*_children(pid))
            cpu, rss = cpu + below.cpu, rss + below.rss
        return cls(cpu, rss)


def _cpu(pid: int) -> float:
    # The name, in parentheses, may hold blanks. Fields 14 to 17: user and system time, own and of reaped children.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile, and has no children then.
        with suppress(FileNotFoundError):
            found += map(int, (task / "children").read_text().split())
    return found


def proportional(*pids: int) -> float:
    """MB of these processes and their descendants, where pages that several share are counted once in all (PSS).

    Raises FileNotFoundError for one that is gone. Slow: the kernel walks over all of the pages.
    """
    total = 0.0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6
        total += proportional(*_children(pid))
    return total
