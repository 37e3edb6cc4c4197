"""The state of a search for the primary: whom to ask next, for how long, and why nobody has helped so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from redis.exceptions import AuthenticationError, ConnectionError, NoPermissionError, RedisError

from palaver.config.sentinels import HostPort, Sentinels
from palaver.store.redis.pool import driver

QUESTION: Final = "GET-MASTER-ADDR-BY-NAME"
ROLE: Final = "HELLO"
"""Whoever may log in may call it, and its answer has the role of the server."""
_WITHIN: Final = 2.0
"""Seconds for all Sentinels together to answer."""
_LEAST: Final = 0.1
"""Seconds for each, even if others have used them up."""
_PRIMARIES: Final = 3
"""Different servers that are tried for one connection: Sentinels differ for a moment, and in a split."""


class DemotedError(ConnectionError):
    """The server takes no writes: it has been made a replica, and the primary is another one."""


class AskingOrder:
    """The Sentinels in the order in which they are asked: whoever helped comes first, and who did not, last."""

    def __init__(self, sentinels: Sentinels) -> None:
        self._places = list(sentinels.places)

    def __iter__(self) -> Iterator[HostPort]:
        return iter(tuple(self._places))

    def doubt(self, place: HostPort) -> None:
        """Ask it last, from now on."""
        # In one step, as threads may share it.
        self._places = [*(other for other in self._places if other != place), place]


class PrimarySearch:
    """One search for the primary."""

    def __init__(self, sentinels: Sentinels, order: AskingOrder) -> None:
        self._service = sentinels.service
        self._order = order
        self._until = time.monotonic() + _WITHIN
        self._tried: set[HostPort] = set()
        self._why: dict[HostPort, str] = {}

    def turns(self) -> Iterator[tuple[HostPort, float]]:
        """Yield each Sentinel with the seconds that it has: an equal share of those that are left."""
        places = tuple(self._order)
        for behind, place in enumerate(places):
            if len(self._tried) >= _PRIMARIES:
                return
            yield place, max((self._until - time.monotonic()) / (len(places) - behind), _LEAST)

    def is_new(self, primary: HostPort) -> bool:
        """Tell whether nobody has named this primary before; it is tried from now on."""
        new = primary not in self._tried
        self._tried.add(primary)
        return new

    def failed(self, sentinel: HostPort, error: Exception | None) -> None:
        """Note that a Sentinel did not help: ``error``, or it does not know the service."""
        self._order.doubt(sentinel)
        self._why[sentinel] = silence(error) if error is not None else f"knows no service {self._service}"

    def error(self) -> ConnectionError:
        """Return the reason why there is no primary."""
        why = "; ".join(f"{place} {reason}" for place, reason in self._why.items())
        return ConnectionError(f"no Sentinel knows the primary of {self._service}: {why}")


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
    fields = answer if isinstance(answer, Mapping) else dict(zip(answer[::2], answer[1::2], strict=False))
    role = next((text(value) for name, value in fields.items() if text(name) == "role"), "master")
    if role != "master":
        raise DemotedError("the server is a replica, and Sentinels have yet to name the primary")


def text(value: Any) -> str:
    """Return a word of an answer, decoded or not."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
