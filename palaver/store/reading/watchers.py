"""A reader of events as they come: what waits for it, and when it has heard nothing for too long.

Events are offered to it. Deltas that wait together, as it is slower than the stream, are one by the time that it takes
them; and one that waits for the next delta, and has all before it, may be passed that at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from palaver.events import DELTAS
from palaver.store.reading.events import StoredEvent, joined
from palaver.vocabulary.limits import count_exceeded, limit_of

_BACKLOG: Final = limit_of("watcher_events")
_BACKLOG_BYTES: Final = limit_of("watcher_bytes")
PassOn = Callable[[StoredEvent], bool]
"""A function that takes an event where it can be sent at once, and tells whether it has."""


class Watcher:
    """One reader of one run's events, or of a conversation."""

    __slots__ = (
        "_due",
        "_overdue",
        "_passing",
        "_patience",
        "_timer",
        "at",
        "bytes",
        "events",
        "hurried",
        "last",
        "news",
        "pass_on",
        "stale",
    )

    def __init__(self, after: int = 0, at: datetime | None = None, pass_on: PassOn | None = None) -> None:
        self.last, self.at = after, at
        """The number and the time of the last event that the reader has; the time may not be known."""
        self.pass_on = pass_on
        self.events: deque[tuple[StoredEvent, int]] = deque()
        self.bytes = 0
        self.news = asyncio.Event()
        self.stale = True
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        """The time, by the loop, at which a wait for news ends; None while there is no wait."""
        self._overdue = self._passing = False
        self._patience = 0.0
        self.hurried = False
        """True if there was no room for what came: the reader is slower than the stream."""

    def offer(self, event: StoredEvent, size: int) -> bool:
        """Take an event, or note that the feed must be read because there is no room for it. A reader that has all
        before it, and waits for it, may be passed a delta at once; tell whether it was."""
        if (
            self._passing
            and self.pass_on is not None
            and not self.events
            and not self.stale
            and event.seq == self.last + 1
            and event.type in DELTAS
            and self.pass_on(event)
        ):
            self.last, self.at = event.seq, event.at
            self._due = asyncio.get_running_loop().time() + self._patience
            return True
        if len(self.events) < _BACKLOG and (self.bytes + size <= _BACKLOG_BYTES or not self.events):
            self.events.append((event, size))
            self.bytes += size
            self.news.set()
        else:
            count_exceeded("watcher_events" if len(self.events) == _BACKLOG else "watcher_bytes")
            self.hurried = True
            self.look()
        return False

    def take(self) -> Sequence[StoredEvent]:
        """Return the offered events that follow on the last one; deltas that have waited together are one. If an event
        is missing in between, the feed must be read."""
        taken: list[StoredEvent] = []
        last = self.last
        while self.events:
            event, size = self.events.popleft()
            self.bytes -= size
            if event.seq > last + 1:
                self.look()
            elif event.seq > last:
                taken.append(event)
                last = event.seq
        return joined(taken)

    def look(self) -> None:
        """Something may have been missed."""
        self.forget()
        self.stale = True
        self.news.set()

    async def silent(self, seconds: float, *, sure: bool = False) -> bool:
        """Tell whether nothing was heard for so long: then something may have been missed. With ``sure`` the reader has
        all that there was, and what comes may be passed to it."""
        loop = asyncio.get_running_loop()
        self.news.clear()
        self._overdue, self._passing = False, sure
        self._patience = seconds
        self._due = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._due:
            self._look_at(self._due)
        try:
            await self.news.wait()
        finally:
            self._due, self._passing = None, False
        return self._overdue

    def end(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, due: float) -> None:
        # One timer for many waits, which mostly end before it does: to make one for each would take longer than they.
        self.end()
        self._timer = asyncio.get_running_loop().call_at(due, self._look_whether_silent)

    def _look_whether_silent(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if asyncio.get_running_loop().time() < self._due:
            self._look_at(self._due)
        else:
            self._overdue = True
            self.look()

    def forget(self) -> None:
        """Drop the events that were offered: they are of no use."""
        self.events.clear()
        self.bytes = 0
