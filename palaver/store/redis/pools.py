"""The pool for an address: of connections to a server, or to whichever server Sentinels name."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from palaver.config.clusters import is_cluster
from palaver.config.sentinels import by_sentinels
from palaver.store.redis.pool import Pool, driver


def pool_of(url: str, **options: Any) -> Pool:
    """Return a pool that connects when it is first used."""
    if by_sentinels(url):
        # Not above: a process whose Redis is one server does without.
        from palaver.store.redis.sentinel.asynchronous import SentinelPool

        return SentinelPool.of(url, **options)
    return Pool.from_url(url, **options)


def client_of(url: str, *, seconds: float, name: str | None = None) -> Redis:
    """Return a client of redis-py's that waits for ``seconds`` for a connection and each answer, and closes its pool
    with itself. Servers show its connections by that ``name``."""
    waits: dict[str, Any] = {
        "max_connections": 2,
        "patience": seconds,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "retry": Retry(NoBackoff(), 0),
        "driver_info": driver(),
        "client_name": name,
    }
    if is_cluster(url):
        # Not above, as with Sentinels.
        from palaver.store.redis.cluster.client import ClusterClient

        return ClusterClient.of(url, **waits)
    return Redis.from_pool(pool_of(url, **waits))
