"""Reading a run's events: from its feed, and from the log what the feed has no more. Every read is bounded in bytes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Final

from palaver.errors import UnknownRun
from palaver.events import EventKind
from palaver.late import dataclass
from palaver.store.reading.events import AMID_ANSWER, LogEntry, StoredEvent, from_feed, from_log
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Fields, StreamEntry
from palaver.store.scripting.log_entries import number
from palaver.vocabulary.ids import is_id
from palaver.vocabulary.limits import limit_of

PAGE: Final = limit_of("page_events")
_BYTES: Final = limit_of("page_bytes")
_FIRST: Final = 32
_MOST: Final = 64
"""Entries in the first read of a page and in a later one, which has twice as many as the one before: it is unknown how
large an entry is before it is here."""


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    """The state of a run for a watcher that has seen its events up to some number."""

    events: Sequence[StoredEvent]
    """The next page."""
    intact: int
    """The number of the newest event that was seen and is still there; less than the newest seen if the store lost
    something."""
    intact_at: datetime | None
    over: bool
    """True if there is nothing behind the events that were seen, nor will be."""


class _LoggedEvents:
    """The events of a run behind a number, as its log has them: the durable ones; and the text of an answer as one
    delta, in the last of the numbers before it that are missing."""

    def __init__(self, after: int) -> None:
        self.events: list[StoredEvent] = []
        self._after = after
        self._seen = after > 0
        """True if a part of the next answer may have been seen up to there."""

    def goes_on_with(self, entry: LogEntry) -> bool:
        """Tell whether an entry may have its text before the last event."""
        return self.events[-1].type in AMID_ANSWER and entry.seq == self.events[-1].seq + 1

    def add(self, entry: LogEntry) -> None:
        """Add the next entry of the run."""
        if entry.seq == self._after:
            self._seen = entry.type in AMID_ANSWER
            return
        deltas = entry.text()
        if deltas and entry.deltas is None:
            self._add_text(entry, deltas[0])
        elif deltas:
            self.events += (delta for delta in deltas if delta.seq > self._after)
        elif self._seen and entry.broken_off():
            self._forget(entry, entry.seq)
        self._seen = self._seen and deltas is None
        self.events.append(entry.event())

    def _add_text(self, entry: LogEntry, delta: StoredEvent) -> None:
        place, last = len(self.events), delta.seq
        while place and self.events[place - 1].seq == last:
            place, last = place - 1, last - 1
        # If all of it was seen, nothing is missing. If only the end is, there is no number to say that the rest is to
        # be forgotten: `message.created` has it.
        if last > self._after + self._seen:
            self.events.insert(place, replace(delta, seq=last))
            self._forget(entry, last)

    def _forget(self, entry: LogEntry, before: int) -> None:
        """Have the watcher forget what it has seen of an answer, by the first number that is missing."""
        if self._seen:
            place = next((i for i, each in enumerate(self.events) if each.seq > self._after + 1 + i), len(self.events))
            if self._after + 1 + place < before:
                self.events.insert(place, entry.discarded(self._after + 1 + place))
        self._seen = False


class Pages:
    """Reads events of one store."""

    def __init__(self, redis: Connection) -> None:
        self._redis = redis

    async def glance(self, run_id: str, last: int, seen: datetime | None) -> FeedSnapshot:
        """Read how a run goes on whose events up to ``last`` were seen; ``seen`` is the time of that one, if it is
        known.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        events = await self.page(run_id, last, PAGE)
        # Afterwards: the events may be from before a loss, but not unnoticed from behind it.
        intact, intact_at = await self._intact(run_id, last, seen)
        over = not events and intact == last and await self._is_over(run_id, last)
        return FeedSnapshot(events, intact, intact_at, over)

    async def page(self, run_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        """Events behind ``after``, in order, as many as are allowed on a page, and at least one if there is one.

        The log has the durable ones only, so the numbers of a page that reaches behind the feed have gaps; the text of
        an answer is told by one delta in the last of its gap.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        feed = feed_of(run_id)
        events, size = list[StoredEvent](), 0
        async with aclosing(self._entries(feed, f"{after + 1}-0", limit)) as entries:  # type: ignore[type-var]
            async for entry_id, fields in entries:
                events += (event for event in from_feed(run_id, entry_id, fields) if event.seq > after)
                size += _size(fields)
                if len(events) >= limit or size >= _BYTES:
                    break
        if events and events[0].seq == after + 1:
            return events[:limit]
        if not events and await self._redis.exists(feed):
            # Nothing new. The log must not be asked: it has the entries since then only in part.
            return []
        before = events[0].seq if events else None
        durable, whole = await self._durable(run_id, after, before, limit)
        return [*durable, *events][:limit] if whole else durable

    async def _entries(self, stream: str, position: str, limit: int = sys.maxsize) -> AsyncIterator[StreamEntry]:
        """At most ``limit`` entries of a stream from ``position`` on."""
        count, left = _FIRST, limit
        while chunk := await self._redis.xrange(stream, position, "+", min(count, left)):
            for entry in chunk:
                yield entry
            left -= len(chunk)
            if len(chunk) < count or left == 0:
                return
            position = f"({chunk[-1][0].decode()}"
            count = min(2 * count, _MOST)

    async def _durable(
        self, run_id: str, after: int, before: int | None, limit: int
    ) -> tuple[Sequence[StoredEvent], bool]:
        """Return the run's events that the log has between two numbers, and whether those are all of them."""
        conversation_id, newest, begin, deleting = await self._redis.hmget(
            keys.run(run_id), ("conversation", "events", "logged", "deleting")
        )
        if conversation_id is None or deleting is not None:
            raise UnknownRun(run_id)
        told, full = _LoggedEvents(after), False
        if newest is None or after >= int(newest):
            return told.events, True
        log, position, size = keys.log(conversation_id.decode()), begin.decode() if begin else "-", 0
        async with aclosing(self._entries(log, position)) as entries:  # type: ignore[type-var]
            async for entry_id, fields in entries:
                if fields[b"run"].decode() != run_id or int(fields[b"seq"]) < after:
                    continue
                entry = from_log(entry_id, fields)
                if (before is not None and entry.seq >= before) or (full and not told.goes_on_with(entry)):
                    break
                told.add(entry)
                size += _size(fields)
                full = bool(told.events) and (len(told.events) >= limit or size >= _BYTES)
                if entry.type == EventKind.RUN_FINISHED:
                    break
        # What is to be forgotten is followed by what takes its place: no watcher is to come back between them.
        forgets = limit <= len(told.events) and told.events[limit - 1].type == EventKind.MESSAGE_DISCARDED
        return told.events[: limit + forgets], not full

    async def _intact(self, run_id: str, last: int, seen: datetime | None) -> tuple[int, datetime | None]:
        """The newest event up to ``last`` that is still the one that was seen, and the time of that one.

        Redis's clock goes on: what took the place of lost events is younger than all of them. Where the feed does not
        reach back so far (any more), or it is unknown when the last event was seen, nothing is known to be lost.
        """
        if last == 0:
            return 0, seen
        feed = feed_of(run_id)
        newest = await self._redis.xrevrange(feed, f"{last}-0", "-", 1)
        if not newest:
            return last, seen
        if number(newest[0][0]) != last:
            # One that the entry behind it stands for, too.
            newest = await self._redis.xrange(feed, f"{last}-0", "+", 1)
        current = next((event for entry in newest for event in from_feed(run_id, *entry) if event.seq == last), None)
        if seen is None or (current is not None and current.at == seen):
            return last, current.at if current else None
        before = f"({last}-0"
        while chunk := await self._redis.xrevrange(feed, before, "-", _FIRST):
            for event in (from_feed(run_id, *entry)[-1] for entry in chunk):
                if event.at <= seen:
                    return event.seq, event.at
            before = f"({chunk[-1][0].decode()}"
        return 0, None

    async def _is_over(self, run_id: str, last: int) -> bool:
        newest, ended = await self._redis.hmget(keys.run(run_id), ("events", "ended_at"))
        if newest is None:
            raise UnknownRun(run_id)
        return ended is not None and last >= int(newest)


def feed_of(run_id: str) -> str:
    """The key of a run's feed, and the channel of that name.

    Raises:
        UnknownRun: no run has such an id.
    """
    if not is_id("run", run_id):
        raise UnknownRun(run_id)
    return keys.feed(run_id)


def _size(fields: Fields) -> int:
    return sum(map(len, fields.values()))
