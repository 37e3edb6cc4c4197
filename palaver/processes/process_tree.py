"""Processes below another one, from /proc. Elsewhere than on Linux there are none."""

from __future__ import annotations

import contextlib
import os


def children_of(pid: int) -> list[int]:
    """The direct children of a process, also of its threads; none if it is gone."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as listed:
                pids += map(int, listed.read().split())
    return pids


def below(pid: int) -> list[int]:
    """Every process below another one, parents first."""
    pids = children_of(pid)
    for child in pids:
        pids += children_of(child)
    return pids


def stopped(pid: int) -> bool:
    """Tell whether each of its threads is stopped by a signal, or has ended."""
    states: list[str] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat") as status:
                # Behind the name, which may hold anything.
                states.append(status.read().rpartition(") ")[2][0])
    return all(state in "TtZX" for state in states)
