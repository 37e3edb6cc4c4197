"""Addresses of a Redis that is found by asking Sentinels: ``redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB``.

The login before the hosts is that of the Redis; the Sentinels' own stands behind ``?``, as `sentinel_username` and
`sentinel_password`. All of it may be percent-encoded, and a `rediss+sentinel` is TLS with both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from palaver.config.tls import verification

PLAIN: Final = "redis+sentinel"
ENCRYPTED: Final = "rediss+sentinel"
PORT: Final = 26379
"""The port of a Sentinel, where none is named."""
MOST: Final = 16
"""Sentinels that an address may name: each is asked, and listened to."""
LIKE: Final = "redis+sentinel://HOST:26379,HOST:26379,HOST:26379/SERVICE/0"

_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_SERVICE: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LONGEST: Final = 8192
_DATABASES: Final = 1 << 16
_LOGIN: Final = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """The host and the port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """A user, which may be the default one, and its password."""

    username: str | None
    password: str = field(repr=False)

    def options(self) -> dict[str, Any]:
        """Return it as redis-py takes it."""
        return {"username": self.username, "password": self.password}


@dataclass(frozen=True, slots=True)
class Sentinels:
    """The Sentinels of an address, and the service that they watch."""

    places: tuple[HostPort, ...]
    service: str
    db: int = 0
    login: Login | None = None
    """That of the Redis."""
    own_login: Login | None = None
    """That of the Sentinels."""
    tls: tuple[tuple[str, Any], ...] = ()
    """The verification of the certificates of both; empty without TLS."""


def by_sentinels(url: str) -> bool:
    """Tell whether the Redis at ``url`` is found by asking Sentinels."""
    return url.partition("://")[0] in (PLAIN, ENCRYPTED)


@lru_cache(maxsize=8)
def sentinels_of(url: str) -> Sentinels:
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
    authority, _, path = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    # First what a password that is not encoded would be taken for.
    places = _places(hosts)
    service, db = _service(path)
    own_login, tls = _options(query, encrypted=scheme == ENCRYPTED)
    return Sentinels(
        places,
        service,
        db,
        _login(*userinfo.partition(":")[::2]) if at else None,
        own_login,
        tuple(verification(tls).items()) if scheme == ENCRYPTED else (),
    )


def _login(username: str, password: str) -> Login:
    if not password:
        raise ValueError("a login is written user:password@, or :password@ for the default user")
    return Login(unquote(username) or None, unquote(password))


def _places(hosts: str) -> tuple[HostPort, ...]:
    places = tuple(dict.fromkeys(map(_place, hosts.split(","))))
    if len(places) > MOST:
        raise ValueError(f"names {len(places)} Sentinels, and {MOST} are the most: three or five do")
    return places


def _place(text: str) -> HostPort:
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        if not closed or (port and not port.startswith(":")) or not _is_ipv6(host):
            raise ValueError("an IPv6 address stands in brackets, as [::1]:26379")
        return HostPort(host, _port(port.removeprefix(":")))
    host, _, port = text.partition(":")
    if ":" in port:
        raise ValueError("an IPv6 address stands in brackets, as [::1]:26379")
    if not _HOST.fullmatch(host):
        raise ValueError(
            f"has the name or the IP address of each Sentinel, as {LIKE}; in a password @ is written %40, / is %2F "
            "and ? is %3F"
        )
    return HostPort(host, _port(port))


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _port(text: str) -> int:
    if not text:
        return PORT
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16):
        raise ValueError(f"the port of a Sentinel is a number from 1 to 65535, and {PORT} unless it is named")
    return int(text)


def _service(path: str) -> tuple[str, int]:
    name, _, db = path.partition("/")
    if not name:
        raise ValueError(f"has the name of the service that the Sentinels watch behind their addresses, as {LIKE}")
    if not _SERVICE.fullmatch(name):
        raise ValueError("the name of a service has letters, digits, dots, hyphens and underscores, 128 at most")
    if not db:
        return name, 0
    if not (db.isascii() and db.isdigit() and int(db[:6]) < _DATABASES):
        raise ValueError("behind the service stands the number of a database, and nothing else: SERVICE/0")
    return name, int(db)


def _options(query: str, *, encrypted: bool) -> tuple[Login | None, list[tuple[str, str]]]:
    """Return the login of the Sentinels, and the options for TLS."""
    given = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
    options = dict(given)
    if len(options) < len(given):
        raise ValueError("has each option once")
    tls = [(name, value) for name, value in given if name.startswith("ssl_")]
    if len(tls) + sum(name in options for name in _LOGIN) < len(options):
        raise ValueError(
            f"behind ? it takes {_LOGIN[0]}, {_LOGIN[1]} and, with {ENCRYPTED}://, ssl_…; & separates them"
        )
    if tls and not encrypted:
        raise ValueError(f"takes ssl_… with {ENCRYPTED}:// only")
    username, password = (options.get(name, "") for name in _LOGIN)
    if not password:
        if username or _LOGIN[1] in options:
            raise ValueError(f"a login of the Sentinels has a {_LOGIN[1]}")
        return None, tls
    return Login(username or None, password), tls
