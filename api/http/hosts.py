"""The origin of a request: the address it arrived at, the host it asks for, and the page that sent it.

A browser sends what any page tells it to, to any address that it can reach. Without keys only the names tell such a
request from one of ours: a page can point its own name at 127.0.0.1, but it cannot take the name off the request.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.vocabulary.addresses import is_loopback

from .problems import Problem

_HOST: Final = re.compile(rb"(?:([A-Za-z0-9._-]{1,253})|\[([0-9A-Fa-f:.]{2,45})\])(?::[0-9]{1,5})?")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SAY_SO: Final = "set PALAVER_API_KEYS, or PALAVER_INSECURE_OPEN=true if everybody who reaches it may do everything"


class Hosts:
    """The addresses and the names that are served."""

    def __init__(self, settings: Settings) -> None:
        self._names = frozenset(name.lower().strip("[]") for name in settings.allowed_hosts)
        self._keyed = settings.keyed
        self._open = settings.insecure_open
        self._origins = frozenset(origin.encode() for origin in settings.cors_origins)

    def check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Let a request pass.

        Raises:
            Problem: ``open_address``, ``invalid_host``, ``host_not_allowed`` or ``origin_not_allowed``.
        """
        if not self._keyed and not self._open and not _is_loopback_address(scope.get("server")):
            raise Problem("open_address", f"Without API keys only a loopback address is served: {_SAY_SO}.")
        if not self._serves(host_of(headers)):
            how = "Name it in PALAVER_ALLOWED_HOSTS"
            raise Problem(
                "host_not_allowed", how + ("." if self._keyed else ", set PALAVER_API_KEYS, or ask 127.0.0.1.")
            )
        self._check_page(scope, headers)

    def _serves(self, host: str) -> bool:
        if host in self._names:
            return True
        if self._keyed:
            return not self._names
        # No page can have an address as its name and point it elsewhere.
        return is_loopback(host) or (self._open and _address(host) is not None)

    def _check_page(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Refuse requests from pages of others: only browsers name the page that sends a request."""
        origin = headers.get(b"origin")
        if origin in self._origins:
            return
        if scope.get("method") not in _SAFE and headers.get(b"sec-fetch-site") == b"cross-site":
            raise Problem("origin_not_allowed", "A page of another site must not do this.")
        if origin is not None and not self._keyed:
            try:
                host = urlsplit(origin.decode("ascii")).hostname
            except ValueError:
                host = None
            if host is None or not self._serves(host.lower()):
                raise Problem("origin_not_allowed", "Name its host in PALAVER_ALLOWED_HOSTS, or set PALAVER_API_KEYS.")


class OwnPages(Hosts):
    """The same where a cookie may be what tells the caller, which a browser sends with requests of any page: only pages
    of the host that is asked, and those of PALAVER_CORS_ORIGINS, change something or open a socket."""

    def _check_page(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if scope.get("method") in _SAFE or origin in self._origins or site in (b"same-origin", b"none"):
            return
        # What names neither is no browser. Older ones name the origin alone.
        own = origin is None or origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower()
        if site is not None or not own:
            raise Problem("origin_not_allowed", "A page of another origin must not do this: see PALAVER_CORS_ORIGINS.")


def host_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the host that is asked for, without its port, in lower case.

    Raises:
        Problem: ``invalid_host``.
    """
    match = _HOST.fullmatch(headers.get(b"host", b""))
    if match is None:
        raise Problem("invalid_host")
    return (match[1] or match[2]).decode().lower()


def refuse_open_bind(settings: Settings, host: str, setting: str = "PALAVER_HOST") -> None:
    """Start only where no other machine gets in, or with keys.

    Raises:
        ConfigurationError: without keys, and ``host``, where connections are to come in, is one that others reach;
            it names the ``setting``.
    """
    if not settings.keyed and not settings.insecure_open and not is_loopback(host):
        raise ConfigurationError(f"{setting}: {host} is reached from elsewhere, and there are no keys: {_SAY_SO}")


@lru_cache(maxsize=1024)
def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback_address(server: tuple[str, int | None] | None) -> bool:
    """Tell whether a connection came to this machine from itself: also by a socket in the file system, which has no
    port."""
    return server is None or server[1] is None or is_loopback(server[0])
