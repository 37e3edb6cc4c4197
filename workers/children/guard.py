"""The guard of a tools worker: its main process ends children whose tools go too far, by SIGKILL, and reports the
truth.

It needs nothing of the child: one that is stopped, that ignores signals, or that keeps its interpreter ends as well.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Set
from typing import Final

from palaver.config.settings import Settings
from palaver.errors import ToolError, ToolFailure
from palaver.processes.process_tree import below, children_of
from palaver.vocabulary.limits import MIB, count_exceeded

from ..sources.containment import failure_of, timed_out
from . import processes
from .child_leases import Ending, renew
from .slots import SlotReading, Slots, overdue

log = logging.getLogger("palaver.workers.children.guard")

_SHORT: Final = 0.25
"""Seconds of a step that is too short to be measured."""
_LOOKS: Final = 20
"""Looks for orphans after a child has gone."""
_STALLED: Final = 1.0
"""Seconds between two looks after which this process was stopped, or very busy."""
_LEAST_LOST: Final = 5.0
_AROUND: Final = 120.0
"""Seconds that a step may take besides its tool: to be claimed, and to be settled through an outage of Redis."""


class Guard:
    """Looks at the children of this process again and again."""

    def __init__(self, slots: Slots, settings: Settings) -> None:
        self._slots = slots
        self._memory = settings.tool_memory * MIB
        self._cpu = settings.tool_cpu_seconds
        self._greatest: dict[int, float] = {}
        """For each child the longest time that any of its tools may take, as it reported before it ran one."""
        self._begun: dict[int, tuple[float, float]] = {}
        """For each child when its step began, and the seconds of CPU that it had used by then."""
        self._endings: dict[int, Ending] = {}
        self._patience = settings.heartbeat
        """Seconds of silence after which a child's lease is renewed in its place."""
        self._lost = max(_LEAST_LOST, settings.lease_seconds / 2)
        """Seconds of silence after which a child without a step is of no use: a thread that a tool left has it."""
        self._renewed: dict[int, float] = {}
        self._looked = time.monotonic()
        self._children: frozenset[int] = frozenset()
        self._orphans = 0
        """So many looks for orphans are still to be made."""
        self._own: frozenset[int] = frozenset(children_of(os.getpid()))
        processes.adopt_orphans()

    def why(self, pid: int) -> Ending | None:
        """Why the child that had this process id was ended; None if it was not."""
        return self._endings.pop(pid, None)

    def look(self, children: Mapping[int, int], busy: Mapping[int, float], *, garbled: Set[int]) -> None:
        """End each child that went too far, and processes whose child is gone.

        ``children`` are the places by process id, ``busy`` says since when (monotonic) a child has its step,
        ``garbled`` which of them cannot be understood any more.
        """
        now, before = time.monotonic(), self._looked
        # If this process got no turn itself, the silence of its children may be its own fault; the next look tells.
        self._looked, awake = now, now - before < _STALLED
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
            if pid in busy and (failure := self._reason_to_end(pid, seen, busy[pid], greatest)):
                self._end(pid, Ending(seen.call, failure_of(failure)))
            elif pid not in busy and awake and now - seen.heartbeat > self._lost:
                log.error("child %d is ended: it has nothing to do and does not answer", pid)
                processes.kill([pid, *below(pid)])
        self._end_garbled(children, garbled)
        if awake:
            self._stand_in(children, busy.keys() & children.keys() - self._endings.keys(), now)
        if self._orphans > 0:
            self._orphans -= 1
            self._end_orphans(children)
        else:
            # Of children that are gone, and were not asked about: they had settled their steps.
            self._endings = {pid: ending for pid, ending in self._endings.items() if pid in children}

    def _reason_to_end(self, pid: int, seen: SlotReading, since: float, greatest: float) -> ToolFailure | None:
        """Return the failure of a child that went too far; None if it did not."""
        lasts = time.monotonic() - since
        if overdue(seen) or lasts > greatest + _AROUND:
            return timed_out(seen.call.tool, seen.call.timeout)
        return self._used_too_much(pid, since, seen.call.tool) if lasts > _SHORT else None

    def _stand_in(self, children: Mapping[int, int], busy: Set[int], now: float) -> None:
        """Renew the leases of children whose loop stands still because their tool keeps the interpreter: it has its
        time. End those that are not awaited any more."""
        silent = {pid: seen for pid in busy if (seen := self._silent(children[pid], pid, now))}
        if silent:
            self._renewed = {pid: at for pid, at in self._renewed.items() if pid in busy} | dict.fromkeys(silent, now)
            for pid in renew({pid: seen.call for pid, seen in silent.items()}):
                if self._slots.seen(children[pid], pid) == silent[pid]:
                    log.warning("child %d is ended: its call is not awaited, and it does not answer", pid)
                    processes.kill([pid, *below(pid)])

    def _silent(self, place: int, pid: int, now: float) -> SlotReading | None:
        """The child's call, if its loop stands still and its lease was not renewed lately."""
        seen = self._slots.seen(place, pid)
        latest = max(seen.heartbeat, self._renewed.get(pid, 0.0)) if seen else now
        return seen if seen and seen.until and now - latest > self._patience else None

    def _used_too_much(self, pid: int, since: float, tool: str) -> ToolFailure | None:
        use = processes.use_of(pid)
        _, before = self._begun.setdefault(pid, (since, use.cpu))
        if self._memory and use.memory > self._memory and processes.memory_of(pid) > self._memory:
            count_exceeded("tool_memory")
            return ToolError(f"{tool} used more than {self._memory // MIB:,} MiB of memory and was ended")
        if self._cpu and use.cpu - before > self._cpu:
            return ToolError(f"{tool} used more than {self._cpu:g} s of CPU time and was ended")
        return None

    def _end_garbled(self, children: Mapping[int, int], garbled: Set[int]) -> None:
        """End those that cannot be understood any more, once their steps are settled, which needs no word to this
        process."""
        for pid in garbled:
            if not self._slots.works(children[pid]):
                log.error("child %d is ended: a tool wrote to a descriptor that is not its own", pid)
                processes.kill([pid, *below(pid)])

    def _end(self, pid: int, ending: Ending) -> None:
        log.error("child %d is ended: %s", pid, ending.failure.message)
        self._endings[pid] = ending
        processes.kill([pid, *below(pid)])

    def _end_orphans(self, children: Mapping[int, int]) -> None:
        """End the processes that a dead child left behind: they are children of this process now. Children have
        sessions of their own, so such a process is in another one than those that this process has started itself."""
        own = (pid for pid in children_of(os.getpid()) if pid not in children and pid not in self._own)
        if orphans := [pid for pid in own if processes.session_of(pid) not in (None, os.getsid(0))]:
            processes.end_children(orphans)
