"""Settings of the issuer whose tokens the API takes, as they are written: addresses, hosts, and the scopes that values
of a claim stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args
from urllib.parse import urlsplit

from palaver.vocabulary.addresses import host_and_port, is_ip, is_loopback, never_asked
from palaver.vocabulary.names import did_you_mean
from palaver.vocabulary.scopes import SCOPES, Scope

OPERATOR: Final = "operator"
"""In place of scopes: all of them, and all tenants."""
_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class ScopeGrant:
    """The scopes that a value of a claim stands for."""

    value: str
    scopes: frozenset[Scope]
    operator: bool = False
    """True if it makes an operator."""


def issuer_url(text: str) -> str:
    """An address of an issuer, as its tokens have it: nothing in it is changed.

    Raises:
        ValueError: it is none; says why.
    """
    place = urlsplit(text)
    if place.scheme not in {"http", "https"}:
        raise ValueError("must begin with https://")
    if place.query or place.fragment or "?" in text or "#" in text or len(text) > _LONGEST:
        raise ValueError(f"must have neither a query nor a fragment, and {_LONGEST} characters at most")
    host, _ = host_and_port(text)
    if place.scheme == "http" and not is_loopback(host):
        raise ValueError("must begin with https://: http:// is for an issuer on this machine alone")
    return text


def private_host(text: str) -> str:
    """A host that may have addresses of a private network, as it is compared.

    Raises:
        ValueError: it is none; says why.
    """
    if "/" in text or "*" in text:
        raise ValueError("is no host: write them one by one, without https:// and without a path")
    bare = ":" in text and not text.startswith("[")
    host, port = host_and_port(f"[{text}]" if bare and text.count(":") > 1 else text)
    if port is not None:
        raise ValueError("has a port: any of a host is meant")
    if is_ip(host) and never_asked(host, loopback=True):
        raise ValueError("is an address at which nothing is ever asked")
    return host


def scope_grant(text: str) -> ScopeGrant:
    """An entry of the scopes that values of a claim stand for, ``VALUE=SCOPE SCOPE``, or ``VALUE=operator``.

    Raises:
        ValueError: it is none; says why.
    """
    value, _, scopes = (part.strip() for part in text.rpartition("="))
    names = scopes.split()
    if not value or not names:
        raise ValueError("is not VALUE=SCOPE, VALUE=SCOPE SCOPE or VALUE=operator")
    for name in names:
        if name not in (*get_args(Scope), OPERATOR):
            raise ValueError(f"has {name[:32]!r}, which is no scope{did_you_mean(name, (*SCOPES, OPERATOR))}")
    if OPERATOR in names:
        return ScopeGrant(value, frozenset(SCOPES), operator=True)
    return ScopeGrant(value, frozenset(scope for scope in SCOPES if scope in names))
