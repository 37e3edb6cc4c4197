"""The feeds of runs: their events, from the feed while there is one, and from the log afterwards.

One pub/sub connection serves all watchers of a process. Pub/sub loses messages when a connection breaks, so a watcher
knows the sequence number it waits for, and reads the feed whenever one is missing or the subscription is (again) new.

A Redis that lost its last writes (a power cut, a failover) gives numbers out a second time. It is never cut off without
its connections breaking, so a reader of the feed looks again whether the last event is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from datetime import datetime
from typing import Final, NamedTuple

from redis.exceptions import RedisError

from palaver.errors import ErrorClass, classify
from palaver.events import EventKind
from palaver.store.reading import records
from palaver.store.reading.events import StoredEvent, about_stream, from_channel, joined
from palaver.store.reading.pages import PAGE, Pages, feed_of
from palaver.store.reading.subscriptions import Subscriptions
from palaver.store.reading.watchers import PassOn, Watcher
from palaver.store.redis.connection import Connection, PubSub, PubSubMessage, now_ms
from palaver.store.redis.reach import reach
from palaver.store.redis.single_flight import SingleFlight, yielding

_READS: Final = 24
"""Reads of feeds under way at once: the connections of the pool are not all for watchers."""
IDLE: Final = 10.0
"""Seconds of silence after which a watcher looks into the feed, whatever the subscription seems to be."""
AWAY: Final = 1.0
"""Seconds after which a watcher whose reading failed looks again; it looks at once when the subscription is new."""

_TURN: Final = 16
_PASSED: Final = 1
_WOKEN: Final = 4
"""A turn of the loop, and the shares of it that a watcher takes that is passed an event, and one that is woken for it;
then others have a turn."""

watches_for: Final[ContextVar[str]] = ContextVar("watches_for", default="")
"""The name of the key that watches in this context; empty for none in particular."""


class WatchingKey(NamedTuple):
    """A key that watches: names are a tenant's own."""

    tenant: str
    key: str


def watcher() -> WatchingKey:
    """Return the key that watches in this context."""
    return WatchingKey(reach().tenant, watches_for.get())


class Feeds:
    """Reads events, and fans live ones out to watchers."""

    def __init__(self, redis: Connection, channels: Callable[[], PubSub] | None = None) -> None:
        """``channels`` makes a connection that hears some, in place of those of ``redis``."""
        self._redis = redis
        self._pages = Pages(redis)
        self._reads = SingleFlight(_READS)
        self._watchers: dict[str, set[Watcher]] = {}
        self._subscriptions = Subscriptions(channels or redis.pubsub, self._dispatch)
        self._served = 0
        """The share of a turn of the loop that watchers have had."""
        self.watching = 0
        """Watchers that this process serves now."""
        self.watching_for: Counter[WatchingKey] = Counter()
        """The number of watchers of each key."""

    async def page(self, run_id: str, *, after: int = 0, limit: int = PAGE) -> Sequence[StoredEvent]:
        """Events behind ``after``, in order: from the feed, and from the log what the feed has no more.

        At most ``limit``, fewer if they are large, at least one if there is one. The log has the durable ones only, so
        the numbers of a page that reaches behind the feed have gaps.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        return await self._reads.read((run_id, after, limit), lambda: self._pages.page(run_id, after, limit))

    async def watch(
        self, run_id: str, *, after: int = 0, seen: datetime | None = None
    ) -> AsyncGenerator[StoredEvent | None, None]:
        """As ``follow``, one event after the other; None in long silences."""
        async with aclosing(self.follow(run_id, after=after, seen=seen)) as batches:  # type: ignore[type-var]
            async for events in batches:
                if not events:
                    yield None
                for event in events:
                    yield event

    async def follow(
        self,
        run_id: str,
        *,
        after: int = 0,
        seen: datetime | None = None,
        counted: bool = True,
        pass_on: PassOn | None = None,
    ) -> AsyncIterator[Sequence[StoredEvent]]:
        """Events behind ``after`` as they come, those that are there together; none in long silences. Ends with
        ``run.finished``.

        While Redis is away or loads its data there is silence; then it goes on where it was. Should the store have lost
        events that were seen, ``stream.rewound`` comes first, numbered as the newest that is left. ``seen`` is the
        time of the event ``after``; without it only what is lost from now on is noticed. A watcher that is ``counted``
        otherwise is no further watcher. Deltas that ``pass_on`` takes, while the next events are waited for, do not
        come here.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        unread = False
        watcher = Watcher(after, seen, pass_on)
        with self.listening(feed_of(run_id), watcher, counted=counted):
            while True:
                events: Sequence[StoredEvent] = ()
                if watcher.stale:
                    watcher.stale = unread = False
                    try:
                        events, watcher.last, watcher.at, over = await self._look(run_id, watcher.last, watcher.at)
                        watcher.stale |= bool(events)
                        if watcher.hurried:
                            events, watcher.hurried = joined(events), bool(events)
                    except RedisError as error:
                        if classify(error).error_class is not ErrorClass.STORAGE:
                            raise
                        unread = True
                        watcher.forget()
                    else:
                        if over:
                            return
                else:
                    events = watcher.take()
                if events:
                    if events[-1].type != EventKind.STREAM_REWOUND:
                        watcher.last, watcher.at = events[-1].seq, events[-1].at
                    yield events
                    if events[-1].type == EventKind.RUN_FINISHED:
                        return
                elif not watcher.stale and not watcher.events:
                    if await watcher.silent(AWAY if unread else IDLE, sure=not unread):
                        yield ()
                    if unread:
                        # Live events may be numbered anew: a store that loads its data lets one subscribe, not read.
                        watcher.look()

    async def _look(
        self, run_id: str, last: int, seen: datetime | None
    ) -> tuple[Sequence[StoredEvent], int, datetime | None, bool]:
        """Read the feed behind ``last``. Return its events, the number and the time up to which the events seen are
        still there, and whether that is all. A loss comes as an event in place of others."""
        glance = await self._reads.read((run_id, last, seen), lambda: self._pages.glance(run_id, last, seen))
        if glance.intact == last:
            return glance.events, last, glance.intact_at, glance.over
        now = records.instant(await now_ms(self._redis))
        loss = about_stream(EventKind.STREAM_REWOUND, run_id, glance.intact, now, glance.intact + 1, last)
        return [loss], glance.intact, glance.intact_at, False

    @contextlib.contextmanager
    def listening(self, channel: str, watcher: Watcher | None = None, *, counted: bool = True) -> Iterator[Watcher]:
        """Hear the messages on the channel of a run's feed, or that something was written on that of a log."""
        watcher = watcher or Watcher()
        if channel not in self._watchers:
            self._watchers[channel] = set()
            self._subscriptions.add(channel)
        self._watchers[channel].add(watcher)
        try:
            with self.place() if counted else contextlib.nullcontext():
                yield watcher
        finally:
            watcher.end()
            others = self._watchers.get(channel, set())
            others.discard(watcher)
            if not others:
                self._watchers.pop(channel, None)
                self._subscriptions.discard(channel)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Count one watcher more."""
        whose = watcher()
        self.watching += 1
        self.watching_for[whose] += 1
        try:
            yield
        finally:
            self.watching -= 1
            self.watching_for[whose] -= 1
            if not self.watching_for[whose]:
                del self.watching_for[whose]

    async def _dispatch(self, message: PubSubMessage) -> None:
        channel = message["channel"].decode()
        watchers = tuple(self._watchers.get(channel, ()))
        if message["type"] == "subscribe":
            # Confirmed just now, at first or after a reconnection: earlier events went unheard.
            async for watcher in yielding(watchers):
                watcher.look()
        elif message["type"] == "message" and watchers:
            if ":log:" in channel:
                async for watcher in yielding(watchers):
                    watcher.look()
                return
            events = from_channel(channel.rpartition(":")[2], message["data"])
            for watcher in watchers:
                for event in events:
                    self._served += _PASSED if watcher.offer(event, len(event.payload)) else _WOKEN
                if self._served >= _TURN:
                    self._served = 0
                    await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop fanning out."""
        self._watchers.clear()
        await self._subscriptions.close()
        await self._reads.close()
