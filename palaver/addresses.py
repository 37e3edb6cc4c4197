"""Addresses that requests bring: which of them lead into a network of one's own, and which are never asked.

What an address says itself is judged without looking its name up: who fetches it looks it up for itself, and may be
told something else. Who does so here asks `never_asked` of each answer, and connects to none but these.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from typing import Final
from urllib.parse import unquote, urlsplit

import idna

_INNER: Final = ("localhost", "internal", "local", "localdomain", "home.arpa")
"""Names, and ends of names, that no public host has: RFC 6761, RFC 6762, RFC 8375; ``internal`` is ICANN's for this."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?){0,15}")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_METADATA: Final = frozenset({"168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"})
"""Where Azure, Alibaba, Oracle, AWS and Google tell machines about themselves, beside 169.254.169.254."""


def leads_within(url: str) -> bool:
    """Whether the host of ``url`` is this machine or one of a network of one's own, or cannot be told for sure."""
    if "\\" in url:  # for browsers it ends the host, for others it does not
        return True
    try:
        host = unquote(urlsplit(url).hostname or "")
    except ValueError:
        return True
    name = unicodedata.normalize("NFKC", host).replace("\u3002", ".").lower().rstrip(".")
    address = _numeric(name)
    if address is not None:
        return not address.is_global or address.is_multicast
    return not name or any(name == inner or name.endswith(f".{inner}") for inner in _INNER)


def host_and_port(address: str) -> tuple[str, int | None]:
    """Host and port of ``HOST``, ``HOST:PORT`` or a URL, in the one way in which they are compared: in small letters,
    in ASCII, without a dot at the end, an IP address in its usual form. None for no port.

    Raises:
        ValueError: it has no host, or one that could be read in several ways; says so and quotes nothing.
    """
    if any(char in address for char in "\\\t\r\n %"):
        raise ValueError("has a character that no host has")
    place = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = place.hostname or "", place.port
    except ValueError:
        raise ValueError("has a port that is none") from None
    if "@" in place.netloc:
        raise ValueError("has a login: a key goes into api_key")
    numeric = _numeric(host.rstrip("."))
    if numeric is not None:
        return str(numeric), port
    try:
        name = idna.encode(host.rstrip("."), uts46=True).decode()
    except (idna.IDNAError, UnicodeError):
        # Machines in a network of one's own may have names with an underscore.
        name = host.rstrip(".").lower()
    if not _NAME.fullmatch(name):
        raise ValueError("has no host that can be asked")
    return name, port


def is_ip(host: str) -> bool:
    """Whether a host of `host_and_port` is an IP address."""
    return _numeric(host) is not None


def never_asked(address: str, *, loopback: bool) -> bool:
    """Whether nothing may be asked at an IP address that a name led to, whoever lists the name: link-local ones, where
    clouds tell machines their keys, and what is no address of one machine. ``loopback`` says whether this machine is
    meant."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    if isinstance(found, ipaddress.IPv6Address):
        within = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if found in _NAT64:
            within = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if within is not None:
            return never_asked(str(within), loopback=loopback)
    if found.is_loopback:
        return not loopback
    useless = found.is_link_local or found.is_multicast or found.is_unspecified or found.is_reserved
    return useless or str(found) in _METADATA


def _numeric(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that ``name`` is, also as ``127.1``, ``0x7f000001`` or ``2130706433``; None for a real name."""
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(name))
        except (OSError, UnicodeError):
            return None
    return (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address
