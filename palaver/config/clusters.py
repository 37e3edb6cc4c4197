"""Addresses of a Redis Cluster: ``redis+cluster://HOST:PORT,HOST:PORT,HOST:PORT/0``, servers that know the others.

The login before the hosts is that of all servers. Behind ``?`` stands `address_remap`, for clusters behind NAT:
``KNOWN:PORT=REACHED:PORT``, several with commas; and with `rediss+cluster`, ``ssl_…``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from palaver.config.tls import verification

CLUSTER: Final = "redis+cluster"
CLUSTER_TLS: Final = "rediss+cluster"
LIKE_CLUSTER: Final = "redis+cluster://HOST:6379,HOST:6379,HOST:6379/0"
_PORT: Final = 6379
_MOST: Final = 64
"""Servers that an address may name: one that answers is enough."""
_LONGEST: Final = 8192
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """The servers of an address, and how to log in there."""

    places: tuple[Place, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: tuple[tuple[str, Any], ...] = ()
    """The options by which certificates are verified; empty without TLS."""
    remapped: tuple[tuple[Place, Place], ...] = ()
    """Addresses by which servers know each other, and those at which they are reached."""

    @property
    def encrypted(self) -> bool:
        """True with TLS."""
        return bool(self.tls)


def is_cluster(url: str) -> bool:
    """Tell whether ``url`` names the servers of a cluster."""
    return url.partition("://")[0] in (CLUSTER, CLUSTER_TLS)


@lru_cache(maxsize=8)
def cluster_of(url: str) -> ClusterUrl:
    """Return what such an address says.

    Raises:
        ValueError: it cannot be understood, and this is why. Never with a word of it: it may hold a password.
    """
    scheme, _, rest = url.partition("://")
    if len(url) > _LONGEST:
        raise ValueError(f"has at most {_LONGEST} characters")
    if "#" in url:
        raise ValueError("has no #; in a password it is written %23")
    rest, _, query = rest.partition("?")
    authority, _, db = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    places = tuple(dict.fromkeys(map(_place, hosts.split(","))))
    if len(places) > _MOST:
        raise ValueError(f"names {len(places)} servers, and {_MOST} are the most: three do, they know the others")
    if db not in ("", "0"):
        raise ValueError(f"a cluster has the database 0 and no other, as {LIKE_CLUSTER}; in a password / is %2F")
    username, _, password = userinfo.partition(":")
    if at and not password:
        raise ValueError("a login is written user:password@, or :password@ for the default user")
    remapped, tls = _options(query, encrypted=scheme == CLUSTER_TLS)
    return ClusterUrl(
        places,
        unquote(username) or None,
        unquote(password) or None,
        tuple(verification(tls).items()) if scheme == CLUSTER_TLS else (),
        remapped,
    )


def _options(query: str, *, encrypted: bool) -> tuple[tuple[tuple[Place, Place], ...], Sequence[tuple[str, str]]]:
    given = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
    options: Mapping[str, str] = dict(given)
    if len(options) < len(given):
        raise ValueError("has each option once")
    tls = [(name, value) for name, value in given if name.startswith("ssl_")]
    if len(tls) + ("address_remap" in options) < len(options):
        raise ValueError(f"behind ? it takes address_remap and, with {CLUSTER_TLS}://, ssl_…; & separates them")
    if tls and not encrypted:
        raise ValueError(f"takes ssl_… with {CLUSTER_TLS}:// only")
    return _remapped(options.get("address_remap")), tls


def _remapped(text: str | None) -> tuple[tuple[Place, Place], ...]:
    if text is None:
        return ()
    pairs = []
    for pair in text.split(","):
        known, equals, reached = pair.partition("=")
        if not equals:
            raise ValueError("address_remap is KNOWN:PORT=REACHED:PORT, and commas separate several")
        pairs.append((_place(known), _place(reached)))
    return tuple(pairs)


def _place(text: str) -> Place:
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        if not closed or (port and not port.startswith(":")) or not _is_ipv6(host):
            raise ValueError("an IPv6 address stands in brackets, as [::1]:6379")
        return host, _port(port.removeprefix(":"))
    host, _, port = text.partition(":")
    if ":" in port:
        raise ValueError("an IPv6 address stands in brackets, as [::1]:6379")
    if not _HOST.fullmatch(host):
        raise ValueError(
            f"has the name or the IP address of each server, as {LIKE_CLUSTER}; in a password @ is written %40, / is "
            "%2F and ? is %3F"
        )
    return host, _port(port)


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _port(text: str) -> int:
    if not text:
        return _PORT
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16):
        raise ValueError(f"the port of a server is a number from 1 to 65535, and {_PORT} unless it is named")
    return int(text)
