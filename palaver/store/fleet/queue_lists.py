"""The queues of a broker that is a Redis: lists of messages, which kombu reads from their other end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from palaver.config.brokers import redis_py_options
from palaver.store.redis.connection import portions
from palaver.store.redis.pool import driver
from palaver.store.redis.pools import pool_of

_PATIENCE: Final = 5.0
"""Seconds for an answer, and for a connection before it. In redis-py's hands, which looks at it for each piece that is
sent or read, it is 35 of the 80 us of CPU that a push takes (Redis beside it, one core of 2)."""
_CONNECT: Final = 2.0
"""Seconds of these to connect."""


class QueueLists:
    """Connects to ``url`` when it is first used.

    Nothing is sent twice: whether a push whose answer is lost has come about, is unknown.

    Raises:
        ConfigurationError: the URL has an option that kombu would not understand.
    """

    def __init__(self, url: str) -> None:
        address, options = redis_py_options(url)
        if urlsplit(url).scheme != "unix":
            options["socket_keepalive"] = True
        self._pool = pool_of(
            address,
            max_connections=2,
            patience=_PATIENCE,
            socket_timeout=None,
            socket_connect_timeout=_CONNECT,
            health_check_interval=15,
            retry=Retry(NoBackoff(), 0),
            driver_info=driver(),
            **options,
        )

    async def push(self, messages: Mapping[str, Sequence[bytes]]) -> None:
        """Append messages to queues, by name: all at once, in one command a queue, or in several if they are very many.

        Redis errors pass through, and TimeoutError; some may have been appended then.
        """
        await self._ask([("LPUSH", queue, *some) for queue, batch in messages.items() for some in portions(batch)])

    async def depth(self, queues: Sequence[str]) -> int:
        """Messages that wait in all of these queues. Redis errors pass through, and TimeoutError."""
        return sum(await self._ask([("LLEN", queue) for queue in queues]))

    async def close(self) -> None:
        """Disconnect; the next use connects again."""
        await self._pool.disconnect()

    async def _ask(self, commands: Sequence[Sequence[str | bytes]]) -> list[Any]:
        async with asyncio.timeout(_PATIENCE):
            connection: Any = await self._pool.get_connection()
            try:
                await connection.send_packed_command(connection.pack_commands(commands))
                return [await connection.read_response() for _ in commands]
            except BaseException:
                # Answers may still be on their way.
                await connection.disconnect(nowait=True)
                raise
            finally:
                await self._pool.release(connection)
