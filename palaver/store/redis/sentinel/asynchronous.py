"""Connections of an event loop to whichever server is the primary.

Each asks the Sentinels when it connects, so that no other code has to know. While there are connections, each Sentinel
is listened to: what it announces ends those that lead elsewhere, at once, and the next use of each connects anew. A
server that stands still, or has lost its network, would otherwise be waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, Self
from weakref import WeakSet

from redis._parsers.hiredis import _AsyncHiredisParser
from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ConnectionError, RedisError, TimeoutError

from palaver.config.sentinels import Sentinels, sentinels_of
from palaver.config.server_lists import HostPort
from palaver.processes.tasks import end
from palaver.store.redis.pool import Pool
from palaver.store.redis.sentinel.discovery import (
    QUESTION,
    ROLE,
    AskingOrder,
    AskSentinel,
    DemotedError,
    Outcome,
    TryServer,
    announced_in,
    options_of,
    primary_in,
    primary_search,
    require_primary,
)
from palaver.store.redis.tls import TlsConnection

log = logging.getLogger("palaver.sentinel")

_ANNOUNCEMENTS: Final = "+switch-master"
_CONNECT: Final = 2.0
_SILENCE: Final = 2.0
"""Seconds without a word after which a Sentinel that is listened to is asked whether it is there, and those it has to
answer."""
_AGAIN: Final = 1.0
"""Seconds after which one that is gone is listened to again, and between two announcements that are acted on: one that
announces nonsense does no more harm than this."""
_BELIEVED: Final = 30.0
"""Seconds in which the server that was announced is tried before Sentinels are asked: not all know it at once."""


class PrimaryFollower:
    """The Sentinels of a pool, and its connections to the server that they name."""

    def __init__(self, sentinels: Sentinels) -> None:
        self._sentinels = sentinels
        self._order = AskingOrder(sentinels)
        self._connections: WeakSet[_LoopConnection] = WeakSet()
        self._listening: list[asyncio.Task[None]] = []
        self._announced: HostPort | None = None
        self._announced_at = float("-inf")

    async def reach(self, connection: _LoopConnection) -> None:
        """Connect to the primary. Raises what Redis raises; ConnectionError too if no Sentinel knows one."""
        self._listen()
        self._connections.add(connection)
        announced = self._announced if time.monotonic() - self._announced_at < _BELIEVED else None
        search, came = primary_search(self._sentinels, self._order, announced), None
        while True:
            match search.send(came):
                case AskSentinel(sentinel, seconds):
                    came = await self._ask(sentinel, seconds)
                case TryServer(server):
                    came = await _fault(connection, server)
                    if came is None:
                        return

    def leave(self, place: HostPort) -> None:
        """End all connections to a server that has turned out to be a replica."""
        self._end(lambda other: other == place)

    async def close(self) -> None:
        """Listen no more, until the next connection."""
        listening, self._listening = self._listening, []
        for task in listening:
            await end(task)

    async def _ask(self, sentinel: HostPort, seconds: float) -> Outcome:
        connection = self._connection(sentinel)
        try:
            async with asyncio.timeout(min(seconds, _CONNECT)):
                await connection.connect()
                await connection.send_command("SENTINEL", QUESTION, self._sentinels.service)
                return primary_in(await connection.read_response())
        except (RedisError, OSError) as error:  # a TimeoutError of asyncio's is an OSError
            return error
        finally:
            await connection.disconnect(nowait=True)

    def _connection(self, place: HostPort) -> Connection:
        kind: Any = TlsConnection if self._sentinels.tls else Connection
        made: Connection = kind(retry=Retry(NoBackoff(), 0), **options_of(self._sentinels, place, _CONNECT))
        return made

    # Listening.

    def _listen(self) -> None:
        if self._listening and not self._listening[0].done():
            return
        # Not in the context of the first caller: it lives longer.
        self._listening = [
            asyncio.create_task(self._hear(place), name=f"sentinel {place}", context=Context())
            for place in self._sentinels.places
        ]

    async def _hear(self, place: HostPort) -> None:
        while True:
            with suppress(RedisError, OSError):
                await self._hear_once(place)
            await asyncio.sleep(_AGAIN)

    async def _hear_once(self, place: HostPort) -> None:
        connection = self._connection(place)
        try:
            await connection.connect()
            await connection.send_command("SUBSCRIBE", _ANNOUNCEMENTS)
            await connection.read_response()
            asked = False
            while True:
                answer = await connection.read_response(timeout=_SILENCE)
                if answer is None:
                    if asked:
                        return
                    await connection.send_command("PING", check_health=False)
                asked = answer is None
                if answer is not None and answer[0] == b"message":
                    announced = announced_in(answer[-1], self._sentinels.service)
                    if announced is not None:
                        self._move(announced)
        finally:
            await connection.disconnect(nowait=True)

    def _move(self, primary: HostPort) -> None:
        """Leave for the server that was announced. All Sentinels announce it, one after another."""
        now = time.monotonic()
        if now - self._announced_at < _AGAIN:
            return
        self._announced, self._announced_at = primary, now
        if left := self._end(lambda other: other != primary):
            log.warning("the primary of %s is %s now: left %d connections", self._sentinels.service, primary, left)

    def _end(self, is_left: Callable[[HostPort], bool]) -> int:
        gone = [connection for connection in self._connected() if is_left(connection.place)]
        for connection in gone:
            connection.abort()
        return len(gone)

    def _connected(self) -> Iterator[_LoopConnection]:
        return (connection for connection in tuple(self._connections) if connection.is_connected)


async def _fault(connection: _LoopConnection, place: HostPort) -> Exception | None:
    """Connect to a server; return why that is not the primary, if it is not. A login that it refuses is raised."""
    try:
        await connection.connect_to(place)
    except AuthenticationError:
        raise
    except (ConnectionError, TimeoutError) as error:
        return error
    return None


class _LoopParser(_AsyncHiredisParser):
    EXCEPTION_CLASSES: dict[str, Any] = {**_AsyncHiredisParser.EXCEPTION_CLASSES, "READONLY": DemotedError}  # noqa: RUF012


class _LoopConnection(Connection):
    """A connection to the primary of a `PrimaryFollower`."""

    def __init__(self, *, group: PrimaryFollower, **options: Any) -> None:
        self._group = group
        super().__init__(parser_class=_LoopParser, **options)

    @property
    def place(self) -> HostPort:
        """The server that it leads to, or led to last."""
        return HostPort(self.host, self.port)

    async def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        """Connect to the primary, whichever server that is."""
        if not self.is_connected:
            await self._group.reach(self)

    async def connect_to(self, place: HostPort) -> None:
        """Connect to this server. Raises what Redis raises; `DemotedError` if it is a replica."""
        self.host, self.port = place.host, place.port
        await super().connect_check_health(retry_socket_connect=False)

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        """Log in, and see that it is the primary."""
        await super().on_connect_check_health(check_health)
        await self.send_command(ROLE, check_health=False)
        require_primary(await self.read_response())

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Read an answer; that of a server that has become a replica ends all connections to it."""
        try:
            return await super().read_response(*arguments, **options)
        except DemotedError:
            self._group.leave(self.place)
            raise

    def abort(self) -> None:
        """End it at once, even while it is used."""
        if self._writer is not None:
            self._writer.transport.abort()


class _LoopTlsConnection(_LoopConnection, TlsConnection):
    """The same, with TLS."""


class SentinelPool(Pool):
    """A pool of connections to the primary."""

    def __init__(self, *, group: PrimaryFollower, **options: Any) -> None:
        super().__init__(group=group, **options)
        self._group = group

    @classmethod
    def of(cls, url: str, **options: Any) -> Self:
        """A pool for an address that names Sentinels."""
        sentinels = sentinels_of(url)
        return cls(
            connection_class=_LoopTlsConnection if sentinels.tls else _LoopConnection,
            group=PrimaryFollower(sentinels),
            db=sentinels.db,
            **(sentinels.login.options() if sentinels.login else {}),
            **{**options, **dict(sentinels.tls)},
        )

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Disconnect; the next use connects again."""
        if inuse_connections:
            await self._group.close()
        await super().disconnect(inuse_connections)
