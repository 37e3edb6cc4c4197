"""What watchers see: the events of a run, from its feed while there is one, and from the log afterwards.

One pub/sub connection serves all watchers of a process. Pub/sub may lose messages, so each watcher knows the sequence number
it waits for and reads the feed whenever one is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from palaver.errors import UnknownRun
from palaver.models import Event
from palaver.store import keys, records

_PAGE: Final = 500
_BACKLOG: Final = 1000
"""Events a slow watcher may lag behind before it reads the feed instead."""
_IDLE: Final = 10.0
"""Seconds of silence after which a watcher looks into the feed itself: pub/sub loses messages on reconnect."""
LAST: Final = "run.finished"
"""The last event of every run."""


class Feeds:
    """Reads events, and fans live ones out to watchers."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._watchers: dict[str, set[asyncio.Queue[Event]]] = {}
        self._pubsub: PubSub | None = None
        self._reader: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def page(self, run_id: str, *, after: int = 0, limit: int = _PAGE) -> list[Event]:
        """Events behind ``after``, in order: from the feed, or what the log kept of them once the feed is gone.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        found = await self._redis.xrange(keys.feed(run_id), f"{after + 1}-0", "+", count=limit)
        if found and (after > 0 or found[0][0] == b"1-0"):
            events = [records.event(run_id, entry_id, fields) for entry_id, fields in found]
            if events[0].seq == after + 1:
                return events
            return await self._durable(run_id, after, before=events[0].seq, limit=limit) or events
        return await self._durable(run_id, after, before=None, limit=limit)

    async def _durable(self, run_id: str, after: int, *, before: int | None, limit: int) -> list[Event]:
        """What the log has of the run's events between two sequence numbers."""
        conversation_id = await self._redis.hget(keys.run(run_id), "conversation")
        if conversation_id is None:
            raise UnknownRun(f"there is no run {run_id}")
        events: list[Event] = []
        position = "-"
        while chunk := await self._redis.xrange(keys.log(conversation_id.decode()), position, "+", count=_PAGE):
            for entry_id, fields in chunk:
                entry = records.entry(entry_id, fields)
                if entry.run_id == run_id and entry.seq > after and (before is None or entry.seq < before):
                    events.append(Event(run_id=run_id, seq=entry.seq, at=entry.at, type=entry.type, data=entry.data))
                if len(events) == limit:
                    return events
            position = f"({chunk[-1][0].decode()}"
        return events

    async def watch(self, run_id: str, *, after: int = 0) -> AsyncIterator[Event | None]:
        """Events behind ``after`` as they come, ending with ``run.finished``; None whenever nothing came for a while.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        async with self._subscribed(run_id) as queue:
            last = after
            stale = True
            while True:
                if stale:
                    while events := await self.page(run_id, after=last):
                        for event in events:
                            last = event.seq
                            yield event
                            if event.type == LAST:
                                return
                    if not await self._redis.exists(keys.run(run_id)):
                        raise UnknownRun(f"there is no run {run_id}")
                    stale = False
                try:
                    async with asyncio.timeout(_IDLE):
                        event = await queue.get()
                except TimeoutError:
                    stale = True
                    yield None
                    continue
                if event.seq <= last:
                    continue
                if event.seq > last + 1:
                    stale = True
                    continue
                last = event.seq
                yield event
                if event.type == LAST:
                    return

    @contextlib.asynccontextmanager
    async def _subscribed(self, run_id: str) -> AsyncIterator[asyncio.Queue[Event]]:
        queue: asyncio.Queue[Event] = asyncio.Queue(_BACKLOG)
        channel = keys.feed(run_id)
        async with self._lock:
            watchers = self._watchers.setdefault(channel, set())
            watchers.add(queue)
            if len(watchers) == 1:
                await self._subscribe(channel)
        try:
            yield queue
        finally:
            async with self._lock:
                watchers.discard(queue)
                if not watchers:
                    self._watchers.pop(channel, None)
                    if self._pubsub is not None:
                        with contextlib.suppress(RedisError):
                            await self._pubsub.unsubscribe(channel)

    async def _subscribe(self, channel: str) -> None:
        if self._pubsub is None:
            self._pubsub = self._redis.pubsub(ignore_subscribe_messages=True)
        await self._pubsub.subscribe(channel)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read(self._pubsub), name="palaver-feeds")

    async def _read(self, pubsub: PubSub) -> None:
        while True:
            try:
                message = await pubsub.get_message(timeout=_IDLE)
            except RedisError:
                # Watchers notice the gap by the sequence numbers; the client re-subscribes when it reconnects.
                await asyncio.sleep(0.5)
                continue
            if message is None:
                if not pubsub.subscribed:
                    return
                continue
            channel = message["channel"].decode()
            run_id = channel.rpartition(":")[2]
            event = records.published(run_id, message["data"])
            for queue in self._watchers.get(channel, ()):
                # A full queue: the watcher lags; the missing numbers send it to the feed.
                with contextlib.suppress(asyncio.QueueFull):
                    queue.put_nowait(event)

    async def close(self) -> None:
        """Stop fanning out."""
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        if self._pubsub is not None:
            await self._pubsub.aclose()
