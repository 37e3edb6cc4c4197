"""Addresses that name several servers, and a sentence for each fault of theirs. It has no word of the address, which
may hold a password."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from ipaddress import IPv6Address
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, unquote

from palaver.config.tls import verification
from palaver.late import dataclass

_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_LONGEST: Final = 8192
Tls = tuple[tuple[str, Any], ...]
"""Options of redis-py by which certificates are verified; empty without TLS."""


class HostPort(NamedTuple):
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

    @classmethod
    def of(cls, userinfo: str) -> Self:
        """Read what stands in front of the hosts. Raises ValueError as all here."""
        username, _, password = userinfo.partition(":")
        if not password:
            raise ValueError("a login is written user:password@, or :password@ for the default user")
        return cls(unquote(username) or None, unquote(password))

    def options(self) -> dict[str, Any]:
        """Return it as redis-py takes it."""
        return {"username": self.username, "password": self.password}


@dataclass(frozen=True, slots=True)
class ServerKind:
    """The servers that an address names."""

    name: str
    port: int
    """The port of one, where none is named."""
    most: int
    """The number of those that an address may name."""
    enough: str
    """The number that does."""
    like: str
    """An address."""


class UrlParts(NamedTuple):
    """An address, taken apart, and nothing in it read."""

    userinfo: str | None
    hosts: str
    path: str
    query: str


def parts_of(url: str) -> UrlParts:
    """Take an address apart.

    Raises:
        ValueError: it is too long, or has a ``#``.
    """
    if len(url) > _LONGEST:
        raise ValueError(f"has at most {_LONGEST} characters")
    if "#" in url:
        raise ValueError("has no #; in a password it is written %23")
    rest, _, query = url.partition("://")[2].partition("?")
    authority, _, path = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    return UrlParts(userinfo if at else None, hosts, path, query)


def hosts_in(text: str, kind: ServerKind) -> tuple[HostPort, ...]:
    """Read hosts with commas between them.

    Raises:
        ValueError: one of them is none, or there are too many.
    """
    hosts = tuple(dict.fromkeys(host_in(each, kind) for each in text.split(",")))
    if len(hosts) > kind.most:
        raise ValueError(f"names {len(hosts)} {kind.name}s, and {kind.most} are the most: {kind.enough}")
    return hosts


def host_in(text: str, kind: ServerKind) -> HostPort:
    """Read a host, and its port if that is named.

    Raises:
        ValueError: it is none.
    """
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        if not closed or (port and not port.startswith(":")) or not _is_ipv6(host):
            raise ValueError(f"an IPv6 address stands in brackets, as [::1]:{kind.port}")
        return HostPort(host, _port(port.removeprefix(":"), kind))
    host, _, port = text.partition(":")
    if ":" in port:
        raise ValueError(f"an IPv6 address stands in brackets, as [::1]:{kind.port}")
    if not _HOST.fullmatch(host):
        raise ValueError(
            f"has the name or the IP address of each {kind.name}, as {kind.like}; in a password @ is written %40, / is "
            "%2F and ? is %3F"
        )
    return HostPort(host, _port(port, kind))


def options_in(query: str, named: Collection[str], encrypted: str, *, tls: bool) -> tuple[Mapping[str, str], Tls]:
    """Read what stands behind the ``?``: the options that are ``named``, and how certificates are verified with TLS,
    for which the scheme is ``encrypted``. Nothing without.

    Raises:
        ValueError: there is another one, or one of TLS without it.
    """
    given = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
    options = dict(given)
    if len(options) < len(given):
        raise ValueError("has each option once")
    verified = [(name, value) for name, value in given if name.startswith("ssl_")]
    if len(verified) + sum(name in options for name in named) < len(options):
        known = ", ".join(named)
        raise ValueError(f"behind ? it takes {known} and, with {encrypted}://, ssl_…; & separates them")
    if verified and not tls:
        raise ValueError(f"takes ssl_… with {encrypted}:// only")
    return options, tuple(verification(verified).items()) if tls else ()


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _port(text: str, kind: ServerKind) -> int:
    if not text:
        return kind.port
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16):
        raise ValueError(f"the port of a {kind.name} is a number from 1 to 65535, and {kind.port} unless it is named")
    return int(text)
