"""Addresses that requests bring: which of them lead into a network of one's own, by what they say themselves.

No name is looked up: who fetches an address looks it up for itself, and may be told something else.
"""

from __future__ import annotations

import ipaddress
import socket
import unicodedata
from typing import Final
from urllib.parse import unquote, urlsplit

_INNER: Final = ("localhost", "internal", "local", "localdomain", "home.arpa")
"""Names, and ends of names, that no public host has: RFC 6761, RFC 6762, RFC 8375; ``internal`` is ICANN's for this."""


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
