"""The channels that a process hears, on one pub/sub connection.

The connection is made for the first channel and outlives the last one for a while: clients that wait for one run after
the other leave moments in which no task waits. No command is cancelled but at the end of the process: redis-py would
drop the connection, and before Python 3.12 swallow the cancel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from contextvars import Context
from typing import Final

from palaver.processes.tasks import end
from palaver.store.redis.connection import Listener, PubSub, PubSubMessage, portions

log = logging.getLogger(__name__)

SPARE: Final = 30.0
"""Seconds for which a connection that hears no channel stays. A new one costs a login and some milliseconds before
anything is heard; one that is idle costs a PING now and then."""
_PAUSE: Final = 0.2
"""Seconds between two attempts to subscribe again while Redis is away."""


class Subscriptions:
    """Hears channels, and passes on their messages and the confirmation of each subscription."""

    def __init__(self, connect: Callable[[], PubSub], hear: Callable[[PubSubMessage], Awaitable[None]]) -> None:
        self._connect = connect
        self._hear = hear
        self._wanted: set[str] = set()
        self._changed: set[str] = set()
        """Channels that Redis may not know to be wanted, or not to be any more."""
        self._news = asyncio.Event()
        self._subscribed: set[str] = set()
        """Channels that Redis was told of."""
        self._unwanted: set[str] = set()
        """Channels that Redis says it sends, though this process does not hear them: it may have been told by now."""
        self._serving: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """The one that serves, and those that give their connection back."""

    def add(self, channel: str) -> None:
        """Hear this channel from a moment on, of which its confirmation tells."""
        self._wanted.add(channel)
        self._change(channel)
        if self._serving is None:
            # Not in the context of this request: it lives longer.
            task = self._serving = asyncio.create_task(self._serve(), name="palaver-feeds", context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def discard(self, channel: str) -> None:
        """Hear this channel no more."""
        self._wanted.discard(channel)
        self._change(channel)

    def _change(self, channel: str) -> None:
        self._changed.add(channel)
        self._news.set()

    async def _serve(self) -> None:
        """Hear what is wanted. After any error everything starts again, on a new connection."""
        while self._wanted:
            pubsub = self._connect()
            try:
                await self._use(pubsub)
                return
            except Exception as error:
                # Not only RedisError: redis-py trips over itself when it sends while it reconnects.
                if self._wanted:
                    log.warning("feeds: %s; subscribing again", type(error).__name__)
                    await asyncio.sleep(_PAUSE)
            finally:
                with contextlib.suppress(Exception):
                    await pubsub.aclose()
        self._serving = None

    async def _use(self, pubsub: PubSub) -> None:
        """Hear on this connection what is wanted, until nothing was for a while."""
        self._changed.clear()
        self._subscribed = set(self._wanted)
        await _each_portion(pubsub.subscribe, self._subscribed)
        hearing = asyncio.create_task(self._listen(pubsub))
        hearing.add_done_callback(lambda _: self._news.set())
        try:
            while not hearing.done():
                self._news.clear()
                await self._tell_changes(pubsub)
                if not await self._wait(SPARE if not self._wanted else None):
                    # A caller that comes from now on gets another connection, and does not wait until this one has
                    # ended.
                    self._serving = None
                    return
        finally:
            await end(hearing)
        hearing.result()

    async def _tell_changes(self, pubsub: PubSub) -> None:
        """Subscribe to what is wanted, and to nothing else."""
        changed, self._changed = self._changed, set()
        unwanted, self._unwanted = self._unwanted, set()
        if new := (changed & self._wanted) - self._subscribed:
            self._subscribed |= new
            await _each_portion(pubsub.subscribe, new)
        if old := (changed & self._subscribed | unwanted) - self._wanted:
            self._subscribed -= old
            await _each_portion(pubsub.unsubscribe, old)

    async def _wait(self, seconds: float | None) -> bool:
        """Wait for news. Return False if there were none, and nothing is wanted."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return bool(self._wanted)
        return True

    async def _listen(self, pubsub: PubSub) -> None:
        listener = Listener(pubsub)
        while True:
            message = await listener.hear()
            if message is None:
                continue
            if message["type"] == "subscribe" and (channel := message["channel"].decode()) not in self._wanted:
                # A new connection of redis-py's, which forgets what it was just told to hear no more; or what was told
                # is not heard yet. A caller that comes now has it subscribed anew.
                self._unwanted.add(channel)
                self._change(channel)
            await self._hear(message)

    async def close(self) -> None:
        """Hear nothing any more."""
        self._wanted.clear()
        await end(*self._tasks)
        self._serving = None


async def _each_portion(say: Callable[..., Awaitable[None]], channels: Collection[str]) -> None:
    for some in portions(tuple(channels)):
        await say(*some)
