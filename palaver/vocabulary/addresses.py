"""Addresses that requests bring: which of them lead into a network of one's own, and which are never asked.

An address is judged without looking its name up: the server that fetches it looks the name up for itself, and may get
another answer. Code here that fetches it asks `never_asked` of each answer, and connects to none but these.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from functools import lru_cache
from typing import Final
from urllib.parse import unquote, urlsplit

import idna

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_INNER: Final = ("localhost", "internal", "local", "localdomain", "home.arpa")
"""Ends of names that no public host has: RFC 6761, RFC 6762, RFC 8375; ``internal`` is ICANN's for this."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?){0,15}")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")
"""IPv6 addresses that end in one of IPv4: RFC 6052, and the older way of RFC 4291."""
_METADATA: Final = frozenset(
    {"168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"}
)
"""Addresses at which Azure, Alibaba, Oracle, AWS (machines and pods) and Google tell machines about themselves, besides
link-local ones."""


def leads_within(url: str) -> bool:
    """Tell whether the host of ``url`` is this machine or one of a private network, or cannot be known for sure."""
    if "\\" in url:  # for browsers it ends the host, for others it does not
        return True
    try:
        host = unquote(urlsplit(url).hostname or "")
    except ValueError:
        return True
    name = unicodedata.normalize("NFKC", host).replace("\u3002", ".").lower().rstrip(".")
    address = _numeric(name)
    if address is not None:
        return is_inner(str(address))
    # A name without a dot is that of a service, or is looked up in the domain of the server that fetches it.
    return "." not in name or name.endswith(tuple(f".{inner}" for inner in _INNER))


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
    """Tell whether a host of `host_and_port` is an IP address."""
    return _numeric(host) is not None


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Tell whether a name or an address is one of this machine that no other machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_inner(address: str) -> bool:
    """Tell whether an IP address is none of the public network, or one at which nothing may be asked."""
    return never_asked(address, loopback=False) or not _meant(ipaddress.ip_address(address.partition("%")[0])).is_global


def never_asked(address: str, *, loopback: bool) -> bool:
    """Tell whether nothing may be asked at an IP address that a name led to, though the name is listed: at link-local
    ones, where clouds tell machines their keys, and at those that are no address of one machine. ``loopback`` says
    whether this machine is meant."""
    try:
        meant = _meant(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return True
    if meant.is_loopback:
        return not loopback
    useless = meant.is_link_local or meant.is_multicast or meant.is_unspecified or meant.is_reserved
    site_local = isinstance(meant, ipaddress.IPv6Address) and meant.is_site_local
    return useless or site_local or str(meant) in _METADATA


def _meant(address: _Address) -> _Address:
    """The IPv4 address that is in one of IPv6, which may be asked in its place; or the address itself."""
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback or address.is_unspecified:
        return address
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


def _numeric(name: str) -> _Address | None:
    """The address that ``name`` is, also as ``127.1``, ``0x7f000001`` or ``2130706433``; None for a real name."""
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(name))
        except (OSError, UnicodeError):
            return None
    return (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address
