"""A worker's first look at the others, before it loads what it needs for its work.

To believe that a worker is dead takes two looks a second apart (ADR 0016), and to load takes nearly as long. So the
first one is taken at the start of the process, and the second one when it is ready (ADR 0016).

It blocks, and has connections and a loop of its own: neither the engine's nor its settings' users are there yet.
"""

from __future__ import annotations

import asyncio
import atexit
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from palaver.config.settings import Settings, settings
from palaver.errors import ConfigurationError
from palaver.late import dataclass
from palaver.store.fleet.fleet import DeadWorker, Fleet
from palaver.store.redis import fleet_keys
from palaver.store.redis.connection import Connection
from palaver.store.redis.pools import client_of

_WITHIN: Final = 1.0
"""Seconds: a look that takes longer is worth nothing, as the worker is ready by then."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A worker that may be dead, as it was when it was first missed."""

    first_seen: DeadWorker
    since: float
    """By the monotonic clock."""


class FirstLook:
    """A look at one moment, and a connection that lasts from before it until the look is used.

    If that one was cut, all were perhaps, and the look says nothing: who lives may need longer to be back.
    """

    def __init__(self, here: Settings) -> None:
        self._loop = asyncio.new_event_loop()
        # It tries nothing again: a connection that is there anew was cut.
        self._redis = client_of(here.store_url, seconds=_WITHIN)
        self._fleet = Fleet(cast(Connection, self._redis), here)
        self._clustered = here.clustered
        self._pubsub: PubSub | None = None
        self._suspects: tuple[Suspect, ...] = ()

    def take(self) -> None:
        """Look. If Redis does not answer, or does not tell, no worker is suspected."""
        with suppress(RedisError, OSError, ConfigurationError):
            self._loop.run_until_complete(asyncio.wait_for(self._take(), _WITHIN))

    def suspects(self) -> Sequence[Suspect]:
        """The workers that were gone, unless this worker was cut off since."""
        lasted = False
        if self._suspects:
            with suppress(RedisError, OSError):
                lasted = self._loop.run_until_complete(asyncio.wait_for(self._lasted(), _WITHIN))
        return self._suspects if lasted else ()

    def close(self) -> None:
        """Give the connections back."""
        with suppress(RedisError, OSError):
            self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _take(self) -> None:
        name = f"first-look~{secrets.token_hex(4)}"
        self._pubsub = (await self._of_workers()).pubsub()
        await self._pubsub.subscribe(fleet_keys.cancel_channel(name))
        # A worker that is not subscribed judges none.
        await self._pubsub.get_message(timeout=_WITHIN)
        roll = await self._fleet.call_roll(name)
        self._suspects = tuple(Suspect(gone, time.monotonic()) for gone in roll.gone)

    async def _of_workers(self) -> Redis:
        """Return a client of the server that knows which workers are connected."""
        if not self._clustered:
            return self._redis
        # Not above: the others do without.
        from palaver.store.redis.cluster.client import HOME, ClusterClient

        cluster = cast(ClusterClient, self._redis)
        return cluster.node(await cluster.master(HOME))

    async def _lasted(self) -> bool:
        if self._pubsub is None:
            return False
        await self._pubsub.ping()
        # After a new connection the subscription is confirmed first.
        message = await self._pubsub.get_message(timeout=_WITHIN)
        return message is not None and message["type"] == "pong"

    async def _close(self) -> None:
        if self._pubsub is not None:
            await self._pubsub.aclose()
        await self._redis.aclose()


_taken: FirstLook | None = None
"""The look of this process, until it is used."""


def take() -> None:
    """Look now, for the caller of `suspects` in this process. What is wrong with its settings, a worker says later."""
    global _taken
    with suppress(ConfigurationError, ValueError):
        _taken = FirstLook(settings())
        # A worker that is refused does not use it, and behind Sentinels its loop has tasks.
        atexit.register(drop)
        _taken.take()


def suspects() -> Sequence[Suspect]:
    """The workers that were gone when this process began, unless it was cut off since. The first call ends the look."""
    try:
        return _taken.suspects() if _taken is not None else ()
    finally:
        drop()


def drop() -> None:
    """End the look, used or not."""
    global _taken
    if _taken is not None:
        _taken.close()
    _taken = None
