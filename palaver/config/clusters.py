"""Addresses of a Redis Cluster: ``redis+cluster://HOST:PORT,HOST:PORT,HOST:PORT/0``, servers that know the others.

The login before the hosts is that of all servers. Behind ``?`` stands `address_remap`, for clusters behind NAT:
``KNOWN:PORT=REACHED:PORT``, several with commas; and with `rediss+cluster`, ``ssl_…``.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import Any, Final

from palaver.config.server_lists import HostPort, Login, ServerKind, Tls, host_in, hosts_in, options_in, parts_of
from palaver.late import dataclass

CLUSTER: Final = "redis+cluster"
CLUSTER_TLS: Final = "rediss+cluster"
LIKE_CLUSTER: Final = "redis+cluster://HOST:6379,HOST:6379,HOST:6379/0"
_SERVER: Final = ServerKind("server", 6379, 64, "three do, they know the others", LIKE_CLUSTER)
_REMAP: Final = "address_remap"


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """The servers of an address, and how to log in there."""

    places: tuple[HostPort, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls = ()
    """The options by which certificates are verified; empty without TLS."""
    remapped: tuple[tuple[HostPort, HostPort], ...] = ()
    """Addresses by which servers know each other, and those at which they are reached."""

    @property
    def encrypted(self) -> bool:
        """True with TLS."""
        return bool(self.tls)

    def options(self, place: HostPort) -> dict[str, Any]:
        """Return the options of a connection to one of its servers, as redis-py takes them: without the class, which
        is another one on a loop and in a thread."""
        return {
            "host": place.host,
            "port": place.port,
            "username": self.username,
            "password": self.password,
            **dict(self.tls),
        }


def is_cluster(url: str) -> bool:
    """Tell whether ``url`` names the servers of a cluster."""
    return url.partition("://")[0] in (CLUSTER, CLUSTER_TLS)


@lru_cache(maxsize=8)
def cluster_of(url: str) -> ClusterUrl:
    """Return what such an address says.

    Raises:
        ValueError: it cannot be understood, and this is why. Never with a word of it: it may hold a password.
    """
    parts = parts_of(url)
    places = hosts_in(parts.hosts, _SERVER)
    if parts.path not in ("", "0"):
        raise ValueError(f"a cluster has the database 0 and no other, as {LIKE_CLUSTER}; in a password / is %2F")
    login = None if parts.userinfo is None else Login.of(parts.userinfo)
    options, tls = options_in(parts.query, [_REMAP], CLUSTER_TLS, tls=url.startswith(f"{CLUSTER_TLS}:"))
    return ClusterUrl(places, **(login.options() if login else {}), tls=tls, remapped=_remapped(options.get(_REMAP)))


def _remapped(text: str | None) -> tuple[tuple[HostPort, HostPort], ...]:
    if text is None:
        return ()
    pairs = []
    for pair in text.split(","):
        known, equals, reached = pair.partition("=")
        if not equals:
            raise ValueError("address_remap is KNOWN:PORT=REACHED:PORT, and commas separate several")
        pairs.append((host_in(known, _SERVER), host_in(reached, _SERVER)))
    return tuple(pairs)
