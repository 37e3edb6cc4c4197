"""The search for the primary, without its connections: whom to ask next, for how long, and why none has helped."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any, Final

from redis.exceptions import AuthenticationError, ConnectionError, NoPermissionError, RedisError

from palaver.config.sentinels import Sentinels
from palaver.config.server_lists import HostPort
from palaver.late import dataclass
from palaver.store.redis.connection import fields_of, text
from palaver.store.redis.pool import driver

QUESTION: Final = "GET-MASTER-ADDR-BY-NAME"
ROLE: Final = "HELLO"
"""Every login may call it, and its answer has the role of the server."""
_WITHIN: Final = 2.0
"""Seconds for all Sentinels together to answer."""
_LEAST: Final = 0.1
"""Seconds for each, even if others have used them up."""
_PRIMARIES: Final = 3
"""Different servers that are tried for one connection: Sentinels differ for a moment, and in a split."""


class DemotedError(ConnectionError):
    """The server takes no writes: it has been made a replica, and the primary is another one."""


class AskingOrder:
    """The Sentinels in the order in which they are asked: one that helped comes first, one that did not, last."""

    def __init__(self, sentinels: Sentinels) -> None:
        self._places = list(sentinels.places)

    def __iter__(self) -> Iterator[HostPort]:
        return iter(tuple(self._places))

    def doubt(self, place: HostPort) -> None:
        """Ask it last, from now on."""
        # In one step, as threads may share it.
        self._places = [*(other for other in self._places if other != place), place]


@dataclass(frozen=True, slots=True)
class AskSentinel:
    """A question to a Sentinel. What comes of it: the primary that it names, None if it knows none, or an error."""

    sentinel: HostPort
    seconds: float
    """The time that it has."""


@dataclass(frozen=True, slots=True)
class TryServer:
    """A connection to a server. What comes of it: None, and the search is over, or why that is not the primary."""

    server: HostPort


Outcome = HostPort | Exception | None
"""The result of one step of a search."""


def primary_search(
    sentinels: Sentinels, order: AskingOrder, announced: HostPort | None = None
) -> Generator[AskSentinel | TryServer, Outcome, None]:
    """Yield what to do next, and take what comes of it: first the server that was announced, then each that a Sentinel
    names. The Sentinels have equal shares of the time that is left.

    Raises why the last server is not the primary; ConnectionError if no Sentinel has named one.
    """
    until = time.monotonic() + _WITHIN
    tried: set[HostPort] = set()
    why: dict[HostPort, str] = {}
    refused: Outcome = None
    if announced is not None:
        tried.add(announced)
        refused = yield TryServer(announced)
    places = tuple(order)
    for behind, place in enumerate(places):
        if len(tried) >= _PRIMARIES:
            break
        named = yield AskSentinel(place, max((until - time.monotonic()) / (len(places) - behind), _LEAST))
        if not isinstance(named, HostPort):
            order.doubt(place)
            why[place] = silence(named) if named is not None else f"knows no service {sentinels.service}"
        elif named not in tried:
            tried.add(named)
            refused = yield TryServer(named)
    if isinstance(refused, Exception):
        raise refused
    reasons = "; ".join(f"{place} {reason}" for place, reason in why.items())
    raise ConnectionError(f"no Sentinel knows the primary of {sentinels.service}: {reasons}")


def options_of(sentinels: Sentinels, place: HostPort, seconds: float) -> dict[str, Any]:
    """Return the options of a connection to one Sentinel, which has ``seconds`` to connect, and for each answer."""
    return {
        "host": place.host,
        "port": place.port,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "driver_info": driver(),
        "protocol": 2,
        **(sentinels.own_login.options() if sentinels.own_login else {}),
        **dict(sentinels.tls),
    }


def is_refusal(error: Exception) -> bool:
    """Tell whether a Sentinel refuses the login."""
    return isinstance(error, AuthenticationError | NoPermissionError)


def silence(error: Exception) -> str:
    """Say why a Sentinel did not answer. Without its words: they may hold what was sent."""
    if is_refusal(error):
        return "refuses the login: sentinel_username and sentinel_password are its user and password"
    return f"does not answer ({type(error).__name__})"


def primary_in(answer: Any) -> HostPort | None:
    """Read an answer to `QUESTION`; None if the Sentinel does not know the service.

    Raises:
        RedisError: it is no address.
    """
    if answer is None:
        return None
    try:
        host, port = (text(part) for part in answer)
        place = HostPort(host, int(port))
    except (TypeError, ValueError):
        raise RedisError("that is no answer of a Sentinel's") from None
    if not place.host or not 0 < place.port < 1 << 16:
        raise RedisError("that is no address")
    return place


def announced_in(data: bytes, service: str) -> HostPort | None:
    """Read an announcement on `+switch-master`: ``SERVICE OLD-HOST OLD-PORT NEW-HOST NEW-PORT``; None if it is of
    another service, or none."""
    name, *places = data.decode(errors="replace").split()[:6] or [""]
    if name != service:
        return None
    try:
        return primary_in(places[2:4])
    except RedisError:
        return None


def require_primary(answer: Any) -> None:
    """Look at an answer to `ROLE`.

    Raises:
        DemotedError: it is a replica's.
    """
    if fields_of(answer).get("role", "master") != "master":
        raise DemotedError("the server is a replica, and Sentinels have yet to name the primary")
