"""Addresses of servers that Palaver can talk to: its Redis, and its broker."""

from __future__ import annotations

from typing import Final

from palaver.config.clusters import CLUSTER, CLUSTER_TLS, LIKE_CLUSTER, cluster_of, is_cluster
from palaver.config.sentinels import ENCRYPTED, LIKE, PLAIN, by_sentinels, sentinels_of
from palaver.config.server_lists import ServerKind, host_in, parts_of

_FOLLOWING: Final = (
    "name one address that follows the primary, a virtual IP, a TCP proxy or a DNS name, as redis://HOST:PORT/0"
)
_NO_CLUSTER_AS_BROKER: Final = (
    "kombu has no transport for a Redis in cluster mode: name one server with `cluster-enabled no`, as "
    f"redis://HOST:PORT/0, Sentinels, as {LIKE}, or a RabbitMQ, as amqp://USER:PASSWORD@HOST//"
)
_REDIS: Final = ServerKind("Redis", 6379, 1, "one does", "redis://HOST:PORT/0")


def known_server(url: str, *, amqp: bool) -> str:
    """The address of a Redis, or with ``amqp`` of a RabbitMQ as well.

    Raises:
        ValueError: it is none, and this is what to write in its place. Never with a word of it: it may hold a password.
    """
    if by_sentinels(url):
        sentinels_of(url)
        return url
    if is_cluster(url):
        if amqp:
            raise ValueError(_NO_CLUSTER_AS_BROKER)
        cluster_of(url)
        return url
    scheme, _, rest = url.partition("://")
    if "sentinel" in scheme:
        raise ValueError(f"Sentinels are named in one address, as {LIKE}, or with {ENCRYPTED}:// for TLS")
    if "cluster" in scheme:
        like = f"A cluster is named in one address, as {LIKE_CLUSTER}, or with {CLUSTER_TLS}:// for TLS"
        raise ValueError(_NO_CLUSTER_AS_BROKER if amqp else like)
    if "," in rest.rpartition("@")[2].partition("/")[0]:
        raise ValueError(
            f"one server, not several: {_FOLLOWING}; Sentinels are named as {LIKE}, a cluster as {LIKE_CLUSTER}"
        )
    if scheme == "redis+socket":
        raise ValueError("a socket is written unix:///PATH?db=0")
    known = ("redis", "rediss", PLAIN, ENCRYPTED, "unix", *(("amqp", "amqps") if amqp else (CLUSTER, CLUSTER_TLS)))
    if scheme not in known:
        raise ValueError(f"must begin with {', '.join(f'{prefix}://' for prefix in known)}")
    if scheme in ("redis", "rediss"):
        _require_one_server(url)
    return url


def _require_one_server(url: str) -> None:
    parts = parts_of(url)
    if parts.hosts:
        host_in(parts.hosts, _REDIS)
    if url.startswith("redis:") and any(option.startswith("ssl_") for option in parts.query.split("&")):
        raise ValueError("takes ssl_… with rediss:// only")
