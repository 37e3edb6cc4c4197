"""A connection that hears channels, for one event loop.

redis-py takes a message through a dozen calls and two timers, which cost the API more than sending it on. Here the
messages that come together are read at once, and wait for their reader. It does not connect again: who uses it
starts anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from hiredis import pack_command
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, RedisError

from palaver.store.redis.connection import PubSubMessage
from palaver.vocabulary.limits import KIB

_KINDS: Final = {
    **{kind.encode(): kind for kind in ("message", "subscribe", "unsubscribe", "pong")},
    # Those of a slot of a cluster.
    **{f"s{kind}".encode(): kind for kind in ("message", "subscribe", "unsubscribe")},
}

_AHEAD: Final = 256 * KIB
"""Bytes of messages that were not taken from which on nothing more is read."""


class ChannelConnection(asyncio.Protocol):
    """The channels that are heard on a connection of redis-py's, which has no other user. It is a `PubSub`.

    It leans on two attributes of redis-py, as the shared client does.
    """

    def __init__(self, make: Callable[[], AbstractConnection]) -> None:
        self._make = make
        self._connection: AbstractConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._reader: Any = None
        self._messages: deque[PubSubMessage] = deque()
        self._error: Exception | None = None
        """The reason why nothing comes any more, once what has come is taken."""
        self._waiting: asyncio.Future[None] | None = None
        self._held = 0
        """Bytes of the messages that wait."""
        self._paused = False

    async def subscribe(self, *channels: str) -> None:
        """Hear these channels, from their confirmations on. Raises what Redis raises."""
        await self._send("SUBSCRIBE", *channels)

    async def unsubscribe(self, *channels: str) -> None:
        """Hear these channels no more, from their confirmations on. Raises what Redis raises."""
        await self._send("UNSUBSCRIBE", *channels)

    async def ssubscribe(self, *channels: str) -> None:
        """Hear these channels of one slot of a cluster. Raises what Redis raises."""
        await self._send("SSUBSCRIBE", *channels)

    async def sunsubscribe(self, *channels: str) -> None:
        """Hear these channels of one slot of a cluster no more. Raises what Redis raises."""
        await self._send("SUNSUBSCRIBE", *channels)

    async def ping(self) -> None:
        """Ask whether the server is there; a ``pong`` is the answer. Raises what Redis raises."""
        await self._send("PING")

    async def get_message(self, *, timeout: float | None) -> PubSubMessage | None:  # noqa: ASYNC109 as redis-py
        """Return the next message; None if none came in time. Raises what Redis raises."""
        if not self._messages:
            await self._wait(timeout)
        if self._messages:
            return self._next()
        if self._error is not None:
            raise self._error
        return None

    def _next(self) -> PubSubMessage:
        message = self._messages.popleft()
        if message["type"] == "message":
            self._held -= len(message["data"])
        if self._paused and not self._messages and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return message

    async def aclose(self) -> None:
        """End the connection."""
        if self._connection is not None:
            with suppress(RedisError, OSError):
                await self._connection.disconnect(nowait=True)

    async def _wait(self, seconds: float | None) -> None:
        if self._error is not None:
            return
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        late = None if seconds is None else loop.call_later(seconds, self._wake)
        try:
            await waiting
        finally:
            self._waiting = None
            if late is not None:
                late.cancel()

    async def _send(self, *command: str) -> None:
        if self._connection is None:
            connection = self._connection = self._make()
            await connection.connect()
            made: Any = connection
            self._transport, self._reader = made._writer.transport, made._parser._reader
            self._transport.set_protocol(self)
        if self._error is not None or self._transport is None:
            raise self._error or ConnectionError("there is no connection")
        self._transport.write(pack_command(command))  # type: ignore[arg-type]

    # What comes.

    def data_received(self, data: bytes) -> None:
        """Messages have come."""
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not NOT_ENOUGH_DATA:
            if isinstance(answer, Exception):
                self._end(answer)
                return
            if not isinstance(answer, list):
                # With RESP3 a ping is answered as it is outside of a subscription.
                answer = [b"pong", b"", answer]
            if (kind := _KINDS.get(answer[0])) is not None:
                self._messages.append({"type": kind, "channel": answer[1], "data": answer[-1]})
                if kind == "message":
                    self._held += len(answer[-1])
        if self._held > _AHEAD and not self._paused and self._transport is not None:
            # Until they are taken: others wait in Redis, which gives up on who is too far behind.
            self._paused = True
            self._transport.pause_reading()
        if self._messages:
            # A large one comes in parts: the first of them is nothing to wake up for.
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: nothing comes any more."""
        self._end(ConnectionError("the subscribed connection broke"))

    def _end(self, error: Exception) -> None:
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
