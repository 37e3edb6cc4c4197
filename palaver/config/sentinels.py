"""Addresses of a Redis that is found by asking Sentinels: ``redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB``.

The login before the hosts is that of the Redis; the Sentinels' own stands behind ``?``, as `sentinel_username` and
`sentinel_password`. All of it may be percent-encoded, and a `rediss+sentinel` is TLS with both.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from palaver.config.server_lists import HostPort, Login, ServerKind, Tls, hosts_in, options_in, parts_of
from palaver.late import dataclass

PLAIN: Final = "redis+sentinel"
ENCRYPTED: Final = "rediss+sentinel"
MOST: Final = 16
"""Sentinels that an address may name: each is asked, and listened to."""
LIKE: Final = "redis+sentinel://HOST:26379,HOST:26379,HOST:26379/SERVICE/0"

_SENTINEL: Final = ServerKind("Sentinel", 26379, MOST, "three or five do", LIKE)
_SERVICE: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_DATABASES: Final = 1 << 16
_LOGIN: Final = ("sentinel_username", "sentinel_password")


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
    tls: Tls = ()
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
    parts = parts_of(url)
    # First what a password that is not encoded would be taken for.
    places = hosts_in(parts.hosts, _SENTINEL)
    service, db = _service(parts.path)
    options, tls = options_in(parts.query, _LOGIN, ENCRYPTED, tls=url.startswith(f"{ENCRYPTED}:"))
    own_login = _own_login(*(options.get(name) for name in _LOGIN))
    login = None if parts.userinfo is None else Login.of(parts.userinfo)
    return Sentinels(places, service, db, login, own_login, tls)


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


def _own_login(username: str | None, password: str | None) -> Login | None:
    if password:
        return Login(username or None, password)
    if username or password is not None:
        raise ValueError(f"a login of the Sentinels has a {_LOGIN[1]}")
    return None
