"""The feed of a conversation: the events of its log, of all of its runs, and between them the transient events of the
run whose turn it is.

A place in this stream is a position of the log, which outlives connections and processes. The log says what comes in
which order. The feed of the active run is read beside it, because it has the deltas: an entry of that run is sent once
the feed has come to it, so that the deltas before it come before it. The text of an answer whose deltas this watcher
was not sent, as its run had ended or they were gone, comes as one delta before its entry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final, NamedTuple

from redis.exceptions import RedisError

from palaver.errors import ErrorClass, UnknownConversation, UnknownRun, classify
from palaver.events import EventKind
from palaver.processes.tasks import end
from palaver.store.reading import records
from palaver.store.reading.events import AMID_ANSWER, LogEntry, PlacedEvent, StoredEvent, about_stream, from_log
from palaver.store.reading.feeds import AWAY, IDLE, Feeds
from palaver.store.reading.reading import LogExtent, Reading
from palaver.store.reading.watchers import Watcher
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, now_ms
from palaver.store.redis.single_flight import SingleFlight
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.limits import limit_of

_READS: Final = 24
"""Reads of logs under way at once: the connections of the pool are not all for watchers."""
_KNOWN: Final = frozenset(EventKind)
_DURABLE: Final = frozenset(kind for kind in EventKind if kind.durable)
_BETWEEN: Final = frozenset(
    {EventKind.RUN_STARTED, EventKind.RUN_FINISHED, EventKind.MESSAGE_CREATED, EventKind.TOOL_FINISHED}
)
"""Entries at which no watcher has seen a part of an answer."""
_BACK: Final = 32
"""Entries that are read at once where one is looked for backwards."""


class FeedCursor(NamedTuple):
    """A place in the stream over a conversation."""

    position: int = 0
    """The position of the last event that is in the log."""
    seq: int = 0
    """The number, in its run, of the last transient event behind that position; 0 if there was none."""


BEGINNING: Final = FeedCursor()
PlacedBatches = AsyncGenerator[Sequence[PlacedEvent], None]
"""The events of a conversation in order, as they come; an empty batch says that nothing happens."""


def _full(events: Collection[StoredEvent]) -> bool:
    """Tell whether these are as many events as one watcher holds at once."""
    return len(events) >= limit_of("page_events") or sum(len(event.payload) for event in events) >= limit_of(
        "page_bytes"
    )


def _begins_answer(event: StoredEvent) -> bool:
    """Tell whether a model begins to answer: all deltas of that attempt come behind."""
    return event.type == EventKind.STEP_STARTED and call_of(event.data["step"]) is None


class ConversationFeeds:
    """Follows conversations."""

    def __init__(self, redis: Connection, feeds: Feeds, reading: Reading) -> None:
        self._redis = redis
        self._feeds = feeds
        self._reading = reading
        self._reads = SingleFlight(_READS)

    async def follow(self, conversation_id: str, after: FeedCursor = BEGINNING) -> PlacedBatches:
        """The events behind ``after`` as they come, those that are there together; none in long silences. It ends with
        ``conversation.deleted``.

        While Redis is away there is silence. Should the store have lost events that were sent, ``stream.rewound`` comes
        first, with positions.

        Raises:
            UnknownConversation: there is no such conversation (any more).
        """
        await self._reading.conversation(conversation_id)
        with self._feeds.listening(keys.log(conversation_id)) as news:
            follower = _Follower(self._redis, self._feeds, self.page, conversation_id, after, news)
            async with aclosing(follower.batches()) as batches:
                async for events in batches:
                    yield events

    def listening(self, conversation_id: str) -> contextlib.AbstractContextManager[Watcher]:
        """Hear of each new entry of a conversation, and of each change of it."""
        return self._feeds.listening(keys.log(conversation_id))

    async def glance(self, conversation_id: str) -> LogExtent:
        """Return how far a conversation is, read once for all who ask at the same time. Raises as `Reading.glance`
        does."""
        return await self._reads.read(conversation_id, lambda: self._reading.glance(conversation_id))

    async def page(self, conversation_id: str, after: int) -> Sequence[LogEntry]:
        """A page of the log behind a position, read once for all who ask at the same time; empty at its end. Raises
        what `Reading.pages` raises."""
        return await self._reads.read((conversation_id, after), lambda: self._page(conversation_id, after))

    async def _page(self, conversation_id: str, after: int) -> Sequence[LogEntry]:
        async with aclosing(self._reading.pages(conversation_id, after=after)) as pages:
            async for page in pages:
                return page
        return ()

    async def close(self) -> None:
        """Stop reading."""
        await self._reads.close()


class _Follower:
    """The progress of one watcher through a conversation."""

    def __init__(
        self,
        redis: Connection,
        feeds: Feeds,
        page: Callable[[str, int], Awaitable[Sequence[LogEntry]]],
        conversation_id: str,
        after: FeedCursor,
        news: Watcher,
    ) -> None:
        self._redis, self._feeds, self._page = redis, feeds, page
        self._id = conversation_id
        self._position, self._resumed = after
        self._news = news
        self._sent_at: datetime | None = None
        """The time of the event at the position, if it was sent to this watcher."""
        self._shown = self._resumed > 0
        """True if it may have seen a part of the answer that is under way."""
        self._torn = False
        """True if the deltas of that answer were not all sent."""
        self._entries: deque[LogEntry] = deque()
        """Entries that were read and not sent yet."""
        self._run: str | None = None
        """The run whose feed is read."""
        self._heard = 0
        """The number up to which it was."""
        self._events: deque[StoredEvent] = deque()
        """The events of the feed that are not handled yet."""
        self._feed: AsyncIterator[Sequence[StoredEvent]] | None = None
        self._next: asyncio.Task[Sequence[StoredEvent]] | None = None

    async def batches(self) -> PlacedBatches:
        """See `ConversationFeeds.follow`."""
        away, known = False, self._position == 0 or self._shown
        try:
            while True:
                events: list[PlacedEvent] = []
                try:
                    if not known:
                        self._shown, known = await self._is_under_way(), True
                    await self._go_on(events)
                    away = False
                except UnknownConversation:
                    now = records.instant(await now_ms(self._redis))
                    gone = StoredEvent(self._run or "", 0, now, EventKind.CONVERSATION_DELETED, b"{}")
                    yield [*events, PlacedEvent.of(gone, self._position)]
                    return
                except RedisError as error:
                    if classify(error).error_class is not ErrorClass.STORAGE:
                        raise
                    away = True
                if events:
                    yield events
                elif (away or not self._news.stale) and await self._silent(AWAY if away else IDLE):
                    yield ()
                if away:
                    self._news.look()
        finally:
            await self._hear_no_more()

    async def _go_on(self, events: list[PlacedEvent]) -> None:
        """Add to ``events`` the events that are there by now."""
        if self._news.stale:
            self._news.stale = False
            try:
                if (lost := await self._lost()) is not None:
                    events.append(lost)
                await self._read()
                if self._run is None:
                    await self._hear_active_run()
            except BaseException:
                self._news.stale = True
                raise
        events += self._due()
        while self._events and await self._tell_of_feed(self._events[0], events):
            self._events.popleft()
        if self._run is None and self._feed is not None:
            await self._hear_no_more()
            self._news.look()

    async def _read(self) -> None:
        """Read on in the log, a page, if there is room; whether there is more is seen once some of this is sent."""
        if _full(self._entries):
            return
        last = self._entries[-1].position if self._entries else self._position
        self._entries += await self._page(self._id, last)

    def _due(self) -> Sequence[PlacedEvent]:
        """Return the entries of the log that can be sent now: of the run whose feed is read, only those that the feed
        has come to."""
        due = list[PlacedEvent]()
        while self._entries and (self._entries[0].run_id != self._run or self._entries[0].seq <= self._heard):
            entry = self._entries.popleft()
            due += (PlacedEvent.of(event, self._position) for event in self._text(entry))
            self._position, self._sent_at, self._resumed = entry.position, entry.at, 0
            beside = self._heard if self._shown and self._run not in (None, entry.run_id) else 0
            if entry.run_id == self._run and entry.type == EventKind.RUN_FINISHED:
                self._run = None
            due.append(PlacedEvent.of(entry, entry.position, beside))
        if due:
            # There is room for more now.
            self._news.look()
        return due

    def _text(self, entry: LogEntry) -> Sequence[StoredEvent]:
        """Return the deltas of an answer that this watcher was not sent; where it has seen some, it is to forget them
        first."""
        if entry.type == EventKind.RUN_STARTED:
            self._shown = False
        if self._shown and entry.run_id != self._run and entry.broken_off():
            self._shown = False
            return [entry.discarded(self._resumed or entry.seq - 1)]
        deltas = entry.text()
        if deltas is None:
            return ()
        shown, self._shown = self._shown, False
        if (entry.run_id == self._run and not self._torn) or self._resumed == entry.seq - 1:
            return ()
        if shown and entry.deltas is None:
            return [entry.discarded(self._resumed or entry.seq - 1), *deltas]
        return [delta for delta in deltas if delta.seq > self._resumed]

    async def _tell_of_feed(self, event: StoredEvent, events: list[PlacedEvent]) -> bool:
        """Add to ``events`` the events that may be sent when the feed has come to ``event``; tell whether those are all
        of them."""
        if event.type == EventKind.STREAM_REWOUND:
            # A loss of the log is noticed there.
            self._heard = event.seq
            self._news.look()
            events.append(PlacedEvent.of(event, self._position))
            return True
        if event.seq <= self._heard or event.type not in _KNOWN:
            return True
        if event.begins > self._heard + 1:
            first, last = self._heard + 1, event.begins - 1
            gap = about_stream(EventKind.STREAM_GAP, event.run_id, self._heard, event.at, first, last)
            events.append(PlacedEvent.of(gap, self._position))
            self._heard, self._torn = last, True
        if event.type in _DURABLE:
            while not any(entry.run_id == event.run_id and entry.seq >= event.seq for entry in self._entries):
                events += self._due()
                if _full(events):
                    return False
                before = len(self._entries)
                await self._read()
                if len(self._entries) == before:
                    break
            self._heard = event.seq
            events += self._due()
        else:
            self._heard = event.seq
            if event.type == EventKind.MESSAGE_DELTA:
                self._shown = True
            elif event.type == EventKind.MESSAGE_DISCARDED or _begins_answer(event):
                self._shown = self._torn = False
            events.append(PlacedEvent.of(event, self._position))
        return True

    async def _hear_active_run(self) -> None:
        active = await self._redis.hget(keys.conversation(self._id), "active")
        if active is None:
            return
        run_id = active.decode()
        newest = await self._seq_before(run_id)
        if newest is None:
            return
        self._run, self._heard, self._torn = run_id, newest, False
        self._feed = self._feeds.follow(run_id, after=self._heard, counted=False)

    async def _seq_before(self, run_id: str) -> int | None:
        """The number of the run's last event up to the place where this watcher is; None if there is no such run."""
        entered, logged = await self._redis.hmget(keys.run(run_id), ("entered", "logged"))
        if logged is None:
            return None
        if int(logged.partition(b"-")[0]) > self._position:
            return 0
        # A number that a client comes back with is of the run that had the turn there.
        resumed = self._resumed if entered is not None and int(entered) <= self._position else 0
        async with aclosing(self._back_from(self._position)) as entries:
            async for entry in entries:
                if entry.run_id == run_id:
                    return max(entry.seq, resumed)
        return resumed

    async def _silent(self, seconds: float) -> bool:
        """Wait for the log or the feed; whether nothing came for so long."""
        if self._feed is None:
            return await self._news.silent(seconds)
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._feed))
        self._news.news.clear()
        if self._news.stale:
            return False
        heard = asyncio.create_task(self._news.news.wait())
        try:
            await asyncio.wait([self._next, heard], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            silent = not self._next.done() and not heard.done()
        finally:
            await end(heard)
        if self._next.done():
            next_, self._next = self._next, None
            try:
                self._events += next_.result()
            except (StopAsyncIteration, UnknownRun):
                # It has ended, and the log has all of that; or it was deleted.
                self._run = None
        if silent:
            self._news.look()
        return silent

    async def _hear_no_more(self) -> None:
        feed, self._feed, self._run = self._feed, None, None
        if self._next is not None:
            await end(self._next)
            self._next = None
        self._events.clear()
        if feed is not None:
            with contextlib.suppress(RuntimeError):
                await feed.aclose()  # type: ignore[attr-defined]

    async def _lost(self) -> PlacedEvent | None:
        """Return the event to send if events that this watcher has seen are gone: it then goes on before them. None
        otherwise.

        Events that were deleted are not lost. Redis's clock goes on: what took the place of lost events is younger.
        """
        if self._sent_at is None:
            return None
        there, length = await asyncio.gather(
            self._redis.xrange(keys.log(self._id), f"{self._position}-0", f"{self._position}-0", 1),
            self._redis.hget(keys.conversation(self._id), "entries"),
        )
        if length is None:
            return None
        if int(length) >= self._position and (not there or from_log(*there[0]).at == self._sent_at):
            return None
        intact, intact_at = await self._newest_seen(min(int(length), self._position - 1))
        now = records.instant(await now_ms(self._redis))
        lost = about_stream(EventKind.STREAM_REWOUND, self._run or "", 0, now, intact + 1, self._position)
        await self._hear_no_more()
        self._entries.clear()
        self._position, self._sent_at, self._resumed = intact, intact_at, 0
        return PlacedEvent.of(lost, intact)

    async def _newest_seen(self, newest: int) -> tuple[int, datetime | None]:
        """Return the newest position up to ``newest`` whose event this watcher has seen, and its time."""
        async with aclosing(self._back_from(newest)) as entries:
            async for entry in entries:
                if self._sent_at is not None and entry.at <= self._sent_at:
                    return entry.position, entry.at
        return 0, None

    async def _is_under_way(self) -> bool:
        """Tell whether this watcher, who comes back behind an entry of the log, may have seen a part of an answer."""
        async with aclosing(self._back_from(self._position)) as entries:
            async for entry in entries:
                if entry.type in AMID_ANSWER:
                    return True
                if entry.type in _BETWEEN:
                    return False
        return False

    async def _back_from(self, position: int) -> AsyncGenerator[LogEntry, None]:
        """The entries of the log up to ``position``, the newest first."""
        before = f"{position}-0"
        while chunk := await self._redis.xrevrange(keys.log(self._id), before, "-", _BACK):
            for entry in chunk:
                yield from_log(*entry)
            before = f"({chunk[-1][0].decode()}"
