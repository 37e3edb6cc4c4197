"""The connections of a process to Redis, lent out in the order of the requests for them."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from redis import DriverInfo
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.exceptions import ConnectionError, ReadOnlyError

from palaver.store.redis.tls import TlsConnection
from palaver.version import __version__


@cache
def driver() -> DriverInfo:
    """Return the name and version that CLIENT LIST shows. Without it redis-py looks its own version up on the disk for
    each connection: that takes 3 ms, and a process without a file descriptor to spare would fail there, not where it
    connects."""
    return DriverInfo().add_upstream_driver("palaver", __version__)


class _Leaving(AbstractConnection):
    """A connection that leaves a server which takes no writes, once it is given back: if the primary has become a
    replica, its name leads elsewhere by now, and what leads to the old one is never closed from there."""

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Read an answer."""
        try:
            return await super().read_response(*arguments, **options)
        except ReadOnlyError:
            self.mark_for_reconnect()  # type: ignore[no-untyped-call]
            raise


@cache
def _leaving(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    return type(kind.__name__, (_Leaving, kind), {})


class Pool(ConnectionPool):
    """A pool in which a caller that finds no free connection waits in line for ``patience`` seconds.

    redis-py's own blocking pool has everybody who takes or gives back a connection pass one lock, and behind all others
    again when woken. With a thousand users at once the line hardly moved, and half of them heard after 2.5 s that there
    was no connection, while Redis had nothing to do.
    """

    def __init__(self, *, patience: float, **options: Any) -> None:
        kind = options.pop("connection_class", Connection)
        super().__init__(connection_class=_leaving(TlsConnection if kind is SSLConnection else kind), **options)
        self._patience = patience
        self._free = asyncio.Semaphore(self.max_connections)

    async def get_connection(self, command_name: object = None, *keys: object, **options: object) -> AbstractConnection:
        """A connection that answers.

        Raises:
            ConnectionError: there is none to Redis, or none was free in time.
        """
        if self._free.locked():
            try:
                async with asyncio.timeout(self._patience):
                    await self._free.acquire()
            except TimeoutError:
                raise ConnectionError("no connection was free in time") from None
        else:
            await self._free.acquire()
        try:
            connection: AbstractConnection = self.get_available_connection()  # type: ignore[no-untyped-call]
        except BaseException:
            self._free.release()
            raise
        try:
            if connection._reader is not None and connection._reader.exception() is not None:
                # It was reset while it was not used: redis-py notices an end in good order only.
                await connection.disconnect()
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def forget_idle(self) -> None:
        """Close the connections that are not used: each would be waited for, if all were cut without a word."""
        for connection in tuple(self._available_connections):
            await connection.disconnect(nowait=True)

    async def release(self, connection: AbstractConnection) -> None:
        """Give a connection back, for the next in line."""
        try:
            await super().release(connection)
        finally:
            self._free.release()
