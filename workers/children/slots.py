"""The call that each child of a tools worker runs, in memory that its parent sees.

A child cannot be asked what it does once a tool has stopped it, or keeps its interpreter: so it says so beforehand.
What stands here was written by a process that runs tools, and is taken for no more than a hint.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import Final

from palaver.late import dataclass

_SLOTS: Final = 4096
"""Children that a worker may have; those beyond have no place here, and are watched by the greatest time only."""
_CALL: Final = struct.Struct("<qqdd128s")
_UNTIL: Final = struct.Struct("<d")
_HEARTBEAT: Final = 16 + _CALL.size
_SECRETS: Final = _HEARTBEAT + _UNTIL.size
_WORKING: Final = _SECRETS + 1
_SIZE: Final = 256
"""Bytes of a slot: when the call must be over (monotonic, 0 = there is none), the process, the call, when the child's
loop went round last (monotonic), whether the conversation of its newest call has secrets, and whether it has a step."""


@dataclass(frozen=True, slots=True)
class ActiveCall:
    """The facts of a call that its child writes down, so that another process can answer it."""

    fence: int
    try_number: int
    timeout: float
    """Seconds that its tool has declared."""
    greatest: float
    """Seconds that any tool of this child may take."""
    tool: str


@dataclass(frozen=True, slots=True)
class SlotReading:
    """A slot, as the parent read it."""

    call: ActiveCall
    until: float
    """The time at which the call must be over, monotonic; 0 while no tool runs."""
    heartbeat: float
    """The time at which the child's loop last went round, monotonic."""


class Slots:
    """A slot for each child, by its place in the pool. Made before the children are, and shared with them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SLOTS * _SIZE)

    def begin(self, place: int, call: ActiveCall, until: float) -> None:
        """In a child: a tool begins; it must be over at ``until`` (monotonic)."""
        if place < _SLOTS:
            at = place * _SIZE
            _UNTIL.pack_into(self._memory, at, 0.0)
            struct.pack_into("<q", self._memory, at + 8, os.getpid())
            name = call.tool.encode("utf-8", "replace")[:128]
            _CALL.pack_into(self._memory, at + 16, call.fence, call.try_number, call.timeout, call.greatest, name)
            _UNTIL.pack_into(self._memory, at, until)

    def end(self, place: int) -> None:
        """In a child: the tool is over."""
        if place < _SLOTS:
            _UNTIL.pack_into(self._memory, place * _SIZE, 0.0)

    def heartbeat(self, place: int) -> None:
        """In a child: its loop goes round, and so its lease is renewed."""
        if place < _SLOTS:
            struct.pack_into("<d", self._memory, place * _SIZE + _HEARTBEAT, time.monotonic())

    def tell_of_secrets(self, place: int, there_are: bool) -> None:
        """In a child, before a tool begins: whether its conversation has secrets, which the parent does not know."""
        if place < _SLOTS:
            self._memory[place * _SIZE + _SECRETS] = there_are

    def work(self, place: int, begins: bool) -> None:
        """In a child: a step begins, or is over, and settled if that was possible."""
        if place < _SLOTS:
            self._memory[place * _SIZE + _WORKING] = begins

    def works(self, place: int) -> bool:
        """In the parent: whether the child says that it has a step."""
        return place < _SLOTS and bool(self._memory[place * _SIZE + _WORKING])

    def may_say_secrets(self, place: int) -> bool:
        """In the parent: whether what the child printed may have secrets that cannot be hidden here."""
        return place >= _SLOTS or bool(self._memory[place * _SIZE + _SECRETS])

    def seen(self, place: int, pid: int) -> SlotReading | None:
        """In the parent: the child's last report; None if that was another child's."""
        if place >= _SLOTS:
            return None
        at = place * _SIZE
        until, owner = struct.unpack_from("<dq", self._memory, at)
        fence, try_number, timeout, greatest, name = _CALL.unpack_from(self._memory, at + 16)
        (heartbeat,) = struct.unpack_from("<d", self._memory, at + _HEARTBEAT)
        if owner != pid:
            return None
        tool = name.rstrip(b"\0").decode("utf-8", "replace")
        return SlotReading(ActiveCall(fence, try_number, timeout, greatest, tool), until, heartbeat)


def overdue(seen: SlotReading) -> bool:
    """Tell whether the call should be over by now."""
    return 0 < seen.until < time.monotonic()
