"""What watchers see: the events of a run, from its feed while there is one, and from the log afterwards.

One pub/sub connection serves all watchers of a process. Pub/sub loses messages when a connection breaks, so a
watcher knows the sequence number it waits for, and reads the feed whenever one is missing or the subscription
is (again) new.

A Redis that lost its last writes (a power cut, a failover) gives numbers out a second time. It is never cut off
without its connections breaking, so whoever reads the feed again looks whether the last event is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Final

from redis.exceptions import RedisError

from palaver.errors import ErrorClass, UnknownRun, classify
from palaver.events import LAST, REWOUND
from palaver.ids import is_id
from palaver.models import Event
from palaver.store import keys, records
from palaver.store.connection import Connection, Listener, PubSub, PubSubMessage, now_ms

log = logging.getLogger(__name__)

_PAGE: Final = 500
_BACKLOG: Final = 256
"""Events kept for a watcher that is slow; beyond that it reads the feed instead: its memory is bounded."""
_IDLE: Final = 10.0
"""Seconds of silence after which a watcher looks into the feed, whatever the subscription seems to be."""
_AWAY: Final = 1.0
"""Seconds after which a watcher whose reading failed looks again; it looks at once when the subscription is new."""
_PAUSE: Final = 0.2
"""Seconds between two attempts to subscribe again while Redis is away."""


class _Watcher:
    """One reader of one run's events."""

    __slots__ = ("events", "news", "stale")

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.news = asyncio.Event()
        self.stale = True

    def offer(self, event: Event) -> None:
        """Take an event, or note that the feed must be read because there is no room for it."""
        if len(self.events) < _BACKLOG:
            self.events.append(event)
            self.news.set()
        else:
            self.look()

    def look(self) -> None:
        """Something may have been missed."""
        self.events.clear()
        self.stale = True
        self.news.set()


class Feeds:
    """Reads events, and fans live ones out to watchers."""

    def __init__(self, redis: Connection) -> None:
        self._redis = redis
        self._watchers: dict[str, set[_Watcher]] = {}
        self._changed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    @property
    def watching(self) -> int:
        """Watchers that this process serves now."""
        return sum(map(len, self._watchers.values()))

    async def page(self, run_id: str, *, after: int = 0, limit: int = _PAGE) -> Sequence[Event]:
        """Events behind ``after``, in order: from the feed, and from the log what the feed has no more.

        The log has the durable ones only, so the numbers of a page that reaches behind the feed have gaps.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        found = await self._redis.xrange(_feed_of(run_id), f"{after + 1}-0", "+", limit)
        events = [records.event(run_id, entry_id, fields) for entry_id, fields in found]
        if events and events[0].seq == after + 1:
            return events
        if not events and await self._redis.exists(_feed_of(run_id)):
            # Nothing new. The log must not be asked: what was written since then is in it only in part.
            return []
        before = events[0].seq if events else None
        return [*await self._durable(run_id, after, before, limit), *events][:limit]

    async def _durable(self, run_id: str, after: int, before: int | None, limit: int) -> Sequence[Event]:
        """What the log has of the run's events between two sequence numbers."""
        conversation_id, newest, begin = await self._redis.hmget(keys.run(run_id), ("conversation", "events", "logged"))
        if conversation_id is None:
            raise UnknownRun(f"there is no run {run_id}")
        events: list[Event] = []
        if newest is None or after >= int(newest):
            return events
        log, position = keys.log(conversation_id.decode()), begin.decode() if begin else "-"
        while chunk := await self._redis.xrange(log, position, "+", _PAGE):
            for entry_id, fields in chunk:
                if fields[b"run"].decode() != run_id or int(fields[b"seq"]) <= after:
                    continue
                entry = records.entry(entry_id, fields)
                if before is not None and entry.seq >= before:
                    return events
                events.append(records.event_of(entry))
                if len(events) == limit or entry.type == LAST:
                    return events
            position = f"({chunk[-1][0].decode()}"
        return events

    async def watch(self, run_id: str, *, after: int = 0, seen: datetime | None = None) -> AsyncIterator[Event | None]:
        """Events behind ``after`` as they come, ending with ``run.finished``; None in long silences.

        While Redis is away or loads its data there is silence; then it goes on where it was. Should the store have lost
        events that were seen, ``stream.rewound`` comes first, numbered as the newest that is left. ``seen`` is the
        time of the event ``after``; without it only what is lost from now on is noticed.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        last, unread = after, False
        with self._watching(_feed_of(run_id)) as watcher:
            while True:
                if watcher.stale:
                    watcher.stale = unread = False
                    try:
                        events = await self.page(run_id, after=last)
                        # Afterwards: what was read may be from before a loss, but not unnoticed from behind it.
                        kept, kept_at = await self._kept(run_id, last, seen)
                        if kept < last:
                            # Last of what may fail: a loss that is not told yet must be found again.
                            now = records.instant(await now_ms(self._redis))
                            told = {"from": kept + 1, "to": last}
                            last, seen, watcher.stale = kept, kept_at, True
                            yield Event(run_id=run_id, seq=kept, at=now, type=REWOUND, data=told)
                            continue
                        seen = kept_at
                        if not events and await self._is_over(run_id, last):
                            return
                    except RedisError as error:
                        if classify(error).error_class is not ErrorClass.STORAGE:
                            raise
                        events, unread = [], True
                        watcher.events.clear()
                    watcher.stale |= bool(events)
                    for event in events:
                        last, seen = event.seq, event.at
                        yield event
                        if event.type == LAST:
                            return
                while watcher.events and not watcher.stale:
                    event = watcher.events.popleft()
                    if event.seq > last + 1:
                        watcher.look()
                    elif event.seq > last:
                        last, seen = event.seq, event.at
                        yield event
                        if event.type == LAST:
                            return
                if watcher.stale:
                    continue
                watcher.news.clear()
                try:
                    async with asyncio.timeout(_AWAY if unread else _IDLE):
                        await watcher.news.wait()
                except TimeoutError:
                    watcher.look()
                    yield None
                if unread:
                    # What came live may be numbered anew: a store that loads its data lets one subscribe, not read.
                    watcher.look()

    async def _kept(self, run_id: str, last: int, seen: datetime | None) -> tuple[int, datetime | None]:
        """The newest event up to ``last`` that is still the one that was seen, and the time of that one.

        Redis's clock goes on: what took the place of lost events is younger than all of them. Where the feed does not
        reach back so far (any more), or nobody knows when the last event was seen, nothing is known to be lost.
        """
        newest = await self._redis.xrevrange(_feed_of(run_id), f"{last}-0", "-", 1)
        if not newest:
            return last, seen
        found = records.event(run_id, *newest[0])
        if seen is None or (found.seq == last and found.at == seen):
            return last, found.at if found.seq == last else None
        before = f"({last}-0"
        while chunk := await self._redis.xrevrange(_feed_of(run_id), before, "-", _PAGE):
            for event in (records.event(run_id, *entry) for entry in chunk):
                if event.at <= seen:
                    return event.seq, event.at
            before = f"({chunk[-1][0].decode()}"
        return 0, None

    async def _is_over(self, run_id: str, last: int) -> bool:
        """Whether the run has ended and ``last`` was its last event.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        newest, ended = await self._redis.hmget(keys.run(run_id), ("events", "ended_at"))
        if newest is None:
            raise UnknownRun(f"there is no run {run_id}")
        return ended is not None and last >= int(newest)

    @contextlib.contextmanager
    def _watching(self, channel: str) -> Iterator[_Watcher]:
        watcher = _Watcher()
        self._watchers.setdefault(channel, set()).add(watcher)
        self._changed.set()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read(), name="palaver-feeds")
        try:
            yield watcher
        finally:
            others = self._watchers.get(channel, set())
            others.discard(watcher)
            if not others:
                self._watchers.pop(channel, None)
                self._changed.set()

    async def _read(self) -> None:
        """Serve watchers as long as there are any. After any trouble everything begins anew, on a new connection."""
        while self._watchers:
            pubsub = self._redis.pubsub()
            try:
                await self._listen(pubsub)
            except Exception as error:
                # Not only RedisError: redis-py trips over itself when it sends while it reconnects.
                log.warning("feeds: %s; subscribing again", type(error).__name__)
                await asyncio.sleep(_PAUSE)
            finally:
                with contextlib.suppress(Exception):
                    await pubsub.aclose()

    async def _listen(self, pubsub: PubSub) -> None:
        channels = set(self._watchers)
        await pubsub.subscribe(*channels)
        listener = Listener(pubsub)
        following = asyncio.create_task(self._follow_changes(pubsub, channels))
        try:
            while self._watchers and not following.done():
                self._dispatch(await listener.hear())
        finally:
            await _end(following)
        if not following.cancelled():
            following.result()

    async def _follow_changes(self, pubsub: PubSub, channels: set[str]) -> None:
        """Subscribe to what is watched, and to nothing else; ``channels`` are subscribed to already."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = set(self._watchers)
            if new := wanted - channels:
                await pubsub.subscribe(*new)
            if old := channels - wanted:
                await pubsub.unsubscribe(*old)
            channels = wanted

    def _dispatch(self, message: PubSubMessage | None) -> None:
        if message is None:
            return
        watchers = self._watchers.get(message["channel"].decode(), ())
        if message["type"] == "subscribe":
            # Confirmed just now, at first or after a reconnection: what came before went unheard.
            for watcher in watchers:
                watcher.look()
        elif message["type"] == "message" and watchers:
            event = records.published(message["channel"].rpartition(b":")[2].decode(), message["data"])
            for watcher in watchers:
                watcher.offer(event)

    async def close(self) -> None:
        """Stop fanning out."""
        self._watchers.clear()
        if self._reader is not None:
            await _end(self._reader)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task until it is done: before Python 3.12, the wait_for in redis-py may swallow a cancel."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.1)


def _feed_of(run_id: str) -> str:
    if not is_id("run", run_id):
        raise UnknownRun(f"there is no run {run_id[:80]!r}")
    return keys.feed(run_id)
