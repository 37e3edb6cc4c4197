"""The channels of a process in a cluster: one connection to each master that has some of them.

The channels of conversations and runs are those of their slots (SSUBSCRIBE): their messages stay on one master. The
few others go to all servers, and are heard at the one that workers report to, where others see who listens.

A connection that ends, or whose slot moves, is made again at the master that has the slot then. Each channel is
confirmed anew, and listeners read what was said in between. The channels of the other masters go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from palaver.config.server_lists import HostPort
from palaver.processes.tasks import end
from palaver.store.redis.channel_connection import ChannelConnection
from palaver.store.redis.cluster.slots import slot_of
from palaver.store.redis.connection import Listener, PubSubMessage

log = logging.getLogger(__name__)

_PAUSE: Final = 0.2
"""Seconds between two attempts to hear a channel again."""
_AHEAD: Final = 1000
"""Messages that were not taken, from which on nothing more is read."""


class FindMaster(Protocol):
    """The master of a slot, asked for anew if need be."""

    def __call__(self, slot: int, *, anew: bool = False) -> Awaitable[HostPort]: ...


class ClusterChannels:
    """The channels that are heard. It is a `PubSub`."""

    def __init__(
        self, master: FindMaster, connect: Callable[[HostPort], Callable[[], AbstractConnection]], home: int
    ) -> None:
        self._master = master
        self._connect = connect
        self._home = home
        self._wanted: set[str] = set()
        self._homeless: set[str] = set()
        """Those that are heard nowhere now."""
        self._heard: dict[HostPort, _Heard] = {}
        self._messages: asyncio.Queue[PubSubMessage] = asyncio.Queue(_AHEAD)
        self._settling: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def subscribe(self, *channels: str) -> None:
        """Hear these channels, from their confirmations on, also when their masters are away just now."""
        self._wanted.update(channels)
        self._seek(channels)

    async def unsubscribe(self, *channels: str) -> None:
        """Hear these channels no more."""
        self._wanted.difference_update(channels)
        self._homeless.difference_update(channels)
        for heard in tuple(self._heard.values()):
            if old := heard.channels.intersection(channels):
                heard.channels -= old
                with suppress(RedisError, OSError):
                    await heard.leave(old)

    async def ping(self) -> None:
        """Answer for the masters: each connection sees by itself that its server is there."""
        with suppress(asyncio.QueueFull):
            self._messages.put_nowait({"type": "pong", "channel": b"", "data": b""})

    async def get_message(self, *, timeout: float | None) -> PubSubMessage | None:  # noqa: ASYNC109 as redis-py
        """Return the next message; None if none came in time."""
        if not self._messages.empty():
            return self._messages.get_nowait()
        try:
            async with asyncio.timeout(timeout):
                return await self._messages.get()
        except TimeoutError:
            return None

    async def aclose(self) -> None:
        """End the connections."""
        self._wanted.clear()
        await end(*self._tasks)
        for heard in self._heard.values():
            await heard.connection.aclose()
        self._heard.clear()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # Not in the context of this request: it lives longer.
        task = asyncio.create_task(work, name="palaver-channels", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _settle(self) -> None:
        """Hear what is heard nowhere at its master, until everything is heard."""
        anew = False
        while self._homeless:
            for channel in tuple(self._homeless):
                try:
                    address = await self._master(self._slot(channel), anew=anew)
                    anew = False
                    await self._hear_at(address, channel)
                except (RedisError, OSError) as error:
                    log.debug("channels: %s; subscribing again", type(error).__name__)
            if self._homeless:
                anew = True
                await asyncio.sleep(_PAUSE)
        self._settling = None

    def _slot(self, channel: str) -> int:
        return slot_of(channel) if _of_slot(channel) else self._home

    async def _hear_at(self, address: HostPort, channel: str) -> None:
        heard = self._heard.get(address)
        if heard is None:
            heard = self._heard[address] = _Heard(ChannelConnection(self._connect(address)))
            heard.channels.add(channel)
            try:
                await heard.join(channel)
            except BaseException:
                del self._heard[address]
                await heard.connection.aclose()
                raise
            self._begin(self._listen(address, heard))
        else:
            heard.channels.add(channel)
            await heard.join(channel)
        self._homeless.discard(channel)

    async def _listen(self, address: HostPort, heard: _Heard) -> None:
        """Pass on what a connection hears, until it ends."""
        listener = Listener(heard.connection)
        try:
            while True:
                message = await listener.hear()
                if message is None:
                    continue
                if message["type"] == "unsubscribe":
                    if (channel := message["channel"].decode()) in heard.channels:
                        # Its slot has moved.
                        heard.channels.discard(channel)
                        self._seek([channel])
                    continue
                await self._messages.put(message)
        except (RedisError, OSError) as error:
            log.info("channels at %s: %s; subscribing again", address, type(error).__name__)
        finally:
            if self._heard.get(address) is heard:
                del self._heard[address]
            with suppress(RedisError, OSError):
                await heard.connection.aclose()
            self._seek(heard.channels)

    def _seek(self, channels: Iterable[str]) -> None:
        """Hear these again, as far as anybody wants to."""
        self._homeless.update(self._wanted.intersection(channels))
        if self._homeless and self._settling is None:
            self._settling = self._begin(self._settle())


class _Heard:
    """The channels that are heard on a connection."""

    def __init__(self, connection: ChannelConnection) -> None:
        self.connection = connection
        self.channels: set[str] = set()

    async def join(self, channel: str) -> None:
        """Hear a channel."""
        await (self.connection.ssubscribe if _of_slot(channel) else self.connection.subscribe)(channel)

    async def leave(self, channels: Iterable[str]) -> None:
        """Hear these no more."""
        for channel in channels:
            await (self.connection.sunsubscribe if _of_slot(channel) else self.connection.unsubscribe)(channel)


def _of_slot(channel: str) -> bool:
    """Tell whether a channel is one of its slot: it is named after a key."""
    return channel.startswith("{")
