"""Addresses of servers that Palaver can talk to: its Redis, and its broker."""

from __future__ import annotations

from typing import Final

_FOLLOWING: Final = (
    "name one address that follows the primary, a virtual IP, a TCP proxy or a DNS name, as redis://HOST:PORT/0"
)


def known_server(url: str, *, amqp: bool) -> str:
    """The address of a Redis, or with ``amqp`` of a RabbitMQ as well.

    Raises:
        ValueError: it is none, and this is what to write in its place. Never with a word of it: it may hold a password.
    """
    scheme, _, rest = url.partition("://")
    if "sentinel" in scheme:
        raise ValueError(
            f"no Sentinel is asked where the primary is: {_FOLLOWING}, and have Sentinel move it at a failover (its "
            "client-reconfig-script)"
        )
    if "cluster" in scheme:
        raise ValueError(
            "a Redis in cluster mode does not work, scripts and queues need one server: name one with `cluster-enabled "
            "no`, as redis://HOST:PORT/0; PALAVER_BROKER_URL takes load off it"
        )
    if "," in rest.rpartition("@")[2].partition("/")[0]:
        raise ValueError(f"one server, not several: {_FOLLOWING}")
    if scheme == "redis+socket":
        raise ValueError("a socket is written unix:///PATH?db=0")
    known = ("redis", "rediss", "unix", *(("amqp", "amqps") if amqp else ()))
    if scheme not in known:
        raise ValueError(f"must begin with {', '.join(f'{prefix}://' for prefix in known)}")
    return url
