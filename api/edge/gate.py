"""The limits on connections: to the process, and on half-open ones of an address."""

from __future__ import annotations

import ipaddress
import logging
from collections import Counter, OrderedDict
from functools import cache
from typing import Final, Protocol

from palaver.config.settings import settings
from palaver.vocabulary.limits import count_exceeded, limit_of

from .descriptors import capacity

_log = logging.getLogger("palaver.api")
_HEAD_TIME: Final = float(limit_of("head_time"))
HASTE: Final = 1.0
"""Seconds for a head from an address that has many half-open connections, for a refused client to read why, for a
request that is on its way when the process ends, and after which a connection with nothing under way may have to give
way to a new one."""
_QUIET: Final = 10.0
"""Seconds between two log lines about a full process."""


class OpenConnection(Protocol):
    """A connection that was let in."""

    def give_way(self) -> None:
        """Close it, because there is a new one."""


class Gate:
    """The connections of one process: at most ``most_open``, and ``half_open`` of an address with time for a head."""

    def __init__(self, most_open: int, half_open: int) -> None:
        self.most_open = most_open
        self.half_open = half_open
        self.open = 0
        """Connections that were let in and are there."""
        self.lingering = 0
        """The number of connections that were refused and still get the reason."""
        self.heads: Counter[str] = Counter()
        """The number of half-open connections of each address: without a whole head, or sockets of unknown callers."""
        self.spare: OrderedDict[OpenConnection, float] = OrderedDict()
        """Connections with nothing under way, by the time since then; the first has been so for longest."""
        self._logged_at = float("-inf")

    def enter(self, connection: OpenConnection, now: float) -> bool:
        """Tell whether there is room for one more. If there is none, an idle one gives way."""
        if self.open >= self.most_open:
            count_exceeded("connections")
            if now - self._logged_at > _QUIET:
                self._logged_at = now
                _log.warning("%d connections, as many as there may be: the oldest idle ones go, or new ones", self.open)
            oldest, since = next(iter(self.spare.items()), (None, now))
            if oldest is None or now - since < HASTE:
                return False
            oldest.give_way()
        self.open += 1
        self.spare[connection] = now
        return True

    def leave(self, connection: OpenConnection) -> None:
        """Note that a connection that was let in is gone."""
        self.open -= 1
        self.spare.pop(connection, None)

    def begin_head(self, address: str) -> float:
        """Count one more half-open connection of ``address``. Return the seconds that it has."""
        seconds = _HEAD_TIME
        if self.heads[address] >= self.half_open:
            count_exceeded("half_open")
            seconds = HASTE
        self.heads[address] += 1
        return seconds

    def end_head(self, address: str) -> None:
        """Note that a connection of ``address`` is half-open no more."""
        self.heads[address] -= 1
        if not self.heads[address]:
            del self.heads[address]


@cache
def process_gate() -> Gate:
    """Return the gate of this process, as its settings and its file descriptors say.

    Raises:
        ConfigurationError: a setting does not fit.
    """
    chosen = settings()
    most_open = capacity(chosen.max_connections)
    return Gate(most_open, min(chosen.max_half_open, most_open // 2))


def network_of(address: str) -> str:
    """Return the part of an address that counts as one: of IPv6, where everybody has 2^64, the network."""
    if ":" not in address:
        return address
    ip = ipaddress.IPv6Address(address.partition("%")[0])
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((ip.packed[:8] + bytes(8), 64)))
