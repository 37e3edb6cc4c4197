"""What the main process of a tools worker does about children whose tools go too far: SIGKILL, and the truth told.

It needs nothing of the child: one that is stopped, that ignores signals, or that keeps its interpreter ends as well.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from palaver.errors import Failure, ToolError, ToolFailure
from palaver.limits import MIB, beyond
from palaver.settings import Settings
from workers import processes
from workers.slots import CallInHand, Slots, overdue
from workers.toolbox import failure_of, timed_out

log = logging.getLogger(__name__)

_SHORT: Final = 0.25
"""Seconds of a step that is too short to be measured."""
_LOOKS: Final = 20
"""Looks for orphans after a child has gone."""
_AROUND: Final = 120.0
"""Seconds that a step may take besides its tool: to be claimed, and to be settled through an outage of Redis."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a child was ended."""

    call: CallInHand
    failure: Failure
    """What the model is to be told."""


class Guard:
    """Looks at the children of this process again and again."""

    def __init__(self, slots: Slots, settings: Settings) -> None:
        self._slots = slots
        self._memory = settings.tool_memory * MIB
        self._cpu = settings.tool_cpu_seconds
        self._greatest: dict[int, float] = {}
        """For each child the longest time that any of its tools may take, as it said before it ran one."""
        self._begun: dict[int, tuple[float, float]] = {}
        """For each child when its step began, and the seconds of CPU that it had used by then."""
        self._endings: dict[int, Ending] = {}
        self._children: frozenset[int] = frozenset()
        self._orphans = 0
        """So many looks for orphans are still to be made."""
        self._own: frozenset[int] = frozenset(processes.children_of(os.getpid()))
        processes.adopt_orphans()

    def why(self, pid: int) -> Ending | None:
        """Why the child that had this process id was ended; None if it was not."""
        return self._endings.pop(pid, None)

    def look(self, children: Mapping[int, int], busy: Mapping[int, float]) -> None:
        """End each child that went too far, and processes whose child is gone.

        ``children`` are the places by process id, ``busy`` says since when (monotonic) a child has its step.
        """
        self._greatest = {pid: most for pid, most in self._greatest.items() if pid in children}
        if self._children != children.keys():
            # Each ended what was below it, unless it was ended itself.
            self._children, self._orphans = frozenset(children), _LOOKS
        self._begun = {pid: begun for pid, begun in self._begun.items() if busy.get(pid) == begun[0]}
        for pid, place in children.items():
            seen = self._slots.seen(place, pid)
            if seen is None or pid in self._endings:
                continue
            greatest = self._greatest.setdefault(pid, seen.call.greatest)
            if pid not in busy:
                continue
            failure: ToolFailure | None = None
            if overdue(seen) or time.monotonic() - busy[pid] > greatest + _AROUND:
                failure = timed_out(seen.call.tool, seen.call.timeout)
            elif time.monotonic() - busy[pid] > _SHORT:
                failure = self._used_too_much(pid, busy[pid], seen.call.tool)
            if failure is not None:
                self._end(pid, Ending(seen.call, failure_of(failure)))
        if self._orphans > 0:
            self._orphans -= 1
            self._end_orphans(children)
        else:
            # Nobody asked: the child had settled its step.
            self._endings.clear()

    def _used_too_much(self, pid: int, since: float, tool: str) -> ToolFailure | None:
        use = processes.use_of(pid)
        _, before = self._begun.setdefault(pid, (since, use.cpu))
        if self._memory and use.memory > self._memory and processes.memory_of(pid) > self._memory:
            beyond("tool_memory")
            return ToolError(f"{tool} used more than {self._memory // MIB:,} MiB of memory and was ended")
        if self._cpu and use.cpu - before > self._cpu:
            return ToolError(f"{tool} used more than {self._cpu:g} s of CPU time and was ended")
        return None

    def _end(self, pid: int, ending: Ending) -> None:
        log.error("child %d is ended: %s", pid, ending.failure.message)
        self._endings[pid] = ending
        processes.kill([pid, *processes.below(pid)])

    def _end_orphans(self, children: Mapping[int, int]) -> None:
        """What a child left behind is a child of this process now. Children have sessions of their own, so it is in
        another one than what this process has started itself."""
        own = (pid for pid in processes.children_of(os.getpid()) if pid not in children and pid not in self._own)
        if orphans := [pid for pid in own if processes.session_of(pid) not in (None, os.getsid(0))]:
            processes.end_children(orphans)
