"""A look at the Sentinels of an address: who answers, which primary they name, and whether they could replace it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from redis.exceptions import RedisError, ResponseError

from palaver.config.sentinels import Sentinels
from palaver.config.server_lists import HostPort
from palaver.late import dataclass
from palaver.store.redis.connection import fields_of
from palaver.store.redis.sentinel.blocking import ask
from palaver.store.redis.sentinel.discovery import QUESTION, is_refusal, primary_in, silence
from palaver.store.server.findings import LOGIN, Finding, Level
from palaver.store.server.needs import Place

_WITHIN: Final = 4.0
"""Seconds for all Sentinels together."""
_LEAST: Final = 0.25
_FEWEST: Final = 3
"""Sentinels of which one may be lost, and the others still agree."""
_LOGIN: Final = "correct sentinel_username and sentinel_password in the address, or the users of the Sentinels"
_START: Final = "start them, or correct their addresses in PALAVER_REDIS_URL or PALAVER_BROKER_URL"
_WATCH: Final = "let them watch it (`sentinel monitor`), or correct the name of the service in the address"
_ADVICE: Final = "look at `SENTINEL CKQUORUM` and `SENTINEL MASTER` there (docs/how-to/redis.md)"


@dataclass(frozen=True, slots=True)
class _View:
    """The service as one Sentinel sees it."""

    primary: HostPort | None
    replicas: int
    sentinels: int
    quorum: int
    unready: str
    """The reason why a failover is impossible; empty if none is."""


def look_at_sentinels(place: Place, sentinels: Sentinels) -> Iterator[Finding]:
    """Yield what is found. After an error the primary is unknown."""
    seconds = max(_WITHIN / len(sentinels.places), _LEAST)
    views: list[_View] = []
    silent: list[str] = []
    refused = 0
    for address in sentinels.places:
        try:
            views.append(_view(sentinels, address, seconds))
        except (RedisError, OSError) as error:
            silent.append(f"{address} {silence(error)}")
            refused += is_refusal(error)
    answered = f"{len(views)} of {len(sentinels.places)} answer"
    if not views:
        yield _nobody(place, silent, refused=refused == len(silent))
        return
    primaries = Counter(view.primary for view in views if view.primary is not None)
    if not primaries:
        said = f"is not found: the Sentinels know no service {sentinels.service}"
        yield Finding(place, "sentinels", "error", answered, said, _WATCH, never=not silent)
        return
    ((primary, _),) = primaries.most_common(1)
    view = next(view for view in views if view.primary == primary)
    wrong = [*silent, *_wrong(view, sentinels.service, len(primaries), len(views) - primaries.total())]
    found = f"{answered}; primary {primary}, {view.replicas} replicas, quorum {view.quorum} of {view.sentinels}"
    level: Level = "warning" if wrong else "ok"
    said = f"may not be replaced when it fails: {'; '.join(wrong)}" if wrong else ""
    yield Finding(place, "sentinels", level, found, said, _START if silent else _ADVICE if wrong else "")


def _wrong(view: _View, service: str, primaries: int, strangers: int) -> Iterator[str]:
    if view.unready:
        yield view.unready
    if primaries > 1:
        yield f"the Sentinels name {primaries} different primaries"
    if strangers:
        yield f"{strangers} of them know no service {service}"
    if not view.replicas:
        yield "there is no replica"
    if view.sentinels < _FEWEST:
        yield f"{view.sentinels} Sentinels watch it, and {_FEWEST} are needed to lose one"


def _nobody(place: Place, silent: Sequence[str], *, refused: bool) -> Finding:
    why = "; ".join(silent)
    if refused:
        said = f"is not found: the Sentinels refuse the login ({len(silent)} of {len(silent)})"
        return Finding(place, "login", "error", "refused by the Sentinels", said, _LOGIN, names=(LOGIN,))
    return Finding(place, "answer", "error", f"no Sentinel answers: {why}", f"is not found: {why}", _START)


def _view(sentinels: Sentinels, address: HostPort, seconds: float) -> _View:
    """Raises what Redis raises where one does not answer."""
    named, told, ready = ask(
        sentinels,
        address,
        seconds,
        *(("SENTINEL", question, sentinels.service) for question in (QUESTION, "MASTER", "CKQUORUM")),
    )
    if isinstance(named, RedisError):
        raise named
    about = _fields(told)
    return _View(
        primary_in(named),
        about.get("num-slaves", 0),
        about.get("num-other-sentinels", 0) + 1,
        about.get("quorum", 0),
        str(ready) if isinstance(ready, ResponseError) and "NOQUORUM" in str(ready) else "",
    )


def _fields(told: Any) -> dict[str, int]:
    if isinstance(told, RedisError):
        return {}
    return {name: int(value) for name, value in fields_of(told).items() if value.isdigit()}
