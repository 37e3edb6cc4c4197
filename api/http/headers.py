"""The request headers with options: media types, waiting, idempotency, and where a stream goes on; read, and
documented."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from starlette.requests import Request

from palaver.late import dataclass
from palaver.vocabulary.limits import count_exceeded, limit_of

from .problems import Problem

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
MAX_WAIT: Final = 60
"""Seconds: below the idle limits of common proxies."""
_KEY: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
_WAIT: Final = re.compile(r"wait\s*=\s*\"?([0-9]{1,6})\"?", re.IGNORECASE)
_VERSION_TAG: Final = re.compile(r'"([1-9][0-9]{0,8})"')
_SEQ: Final = re.compile(r"[0-9]{1,15}")


def _given(request: Request, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in request.scope["headers"] if key == name]


def accepted(request: Request, *offered: str) -> str:
    """Return the media type of ``offered`` that the client likes best; the first when it does not care.

    Raises:
        Problem: ``not_acceptable``.
    """
    ranges = ",".join(_given(request, b"accept"))
    if not ranges or ranges == "*/*":
        return offered[0]
    if ranges.count(",") >= limit_of("accept"):
        count_exceeded("accept")
        raise Problem("not_acceptable", f"At most {limit_of('accept')} media types in Accept.")
    liked = [(_quality(ranges, kind), -place, kind) for place, kind in enumerate(offered)]
    quality, _, best = max(liked)
    if quality <= 0:
        raise Problem("not_acceptable", f"Offered: {', '.join(offered)}.")
    return best


def _quality(ranges: str, kind: str) -> float:
    """Return the weight that an Accept header gives a media type: the most specific range that covers it decides."""
    family = kind.partition("/")[0] + "/*"
    weights: dict[str, float] = {}
    for media_range in ranges.lower().split(","):
        name, *parameters = (part.strip() for part in media_range.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        try:
            weights[name] = min(max(float(weight), 0.0), 1.0)
        except ValueError:
            weights[name] = 0.0
    return next((weights[name] for name in (kind, family, "*/*") if name in weights), 0.0)


def preferred_wait(request: Request) -> int:
    """Return the seconds that the client would wait (``Prefer: wait=N``), 0 for none. An unreadable wait is ignored."""
    for preference in ",".join(_given(request, b"prefer")).split(",", limit_of("accept"))[: limit_of("accept")]:
        if match := _WAIT.fullmatch(preference.strip()):
            return min(int(match[1]), MAX_WAIT)
    return 0


def idempotency_key(request: Request) -> str | None:
    """Return the ``Idempotency-Key``, if there is one.

    Raises:
        Problem: ``invalid_idempotency_key``.
    """
    keys = _given(request, b"idempotency-key")
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise Problem("invalid_idempotency_key", "One key of 1 to 255 printable ASCII characters.")
    return keys[0]


def last_event_id(request: Request) -> int | None:
    """Return the ``Last-Event-ID``, if there is one.

    Raises:
        Problem: ``invalid_cursor``.
    """
    event_id = request.headers.get("last-event-id")
    if event_id is None:
        return None
    if not _SEQ.fullmatch(event_id):
        raise Problem("invalid_cursor", "Last-Event-ID is not an id of an event of this run.")
    return int(event_id)


def expected_version(request: Request) -> int | None:
    """Return the version that the client expects (``If-Match``, ``If-None-Match: *``): 0 for none, -1 for any, None if
    it does not matter.

    Raises:
        Problem: ``invalid_precondition``.
    """
    match, none_match = _given(request, b"if-match"), _given(request, b"if-none-match")
    if not match and not none_match:
        return None
    if none_match == ["*"] and not match:
        return 0
    if match == ["*"] and not none_match:
        return -1
    if len(match) != 1 or none_match or not (tag := _VERSION_TAG.fullmatch(match[0].strip())):
        raise Problem("invalid_precondition", 'If-Match takes one ETag, such as "7", or *; If-None-Match takes *.')
    return int(tag[1])


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """A request header that a route looks at, as the annotation of a parameter of its handler."""

    name: str
    read: Callable[[Request], Any]
    schema: Mapping[str, Any]
    description: str
    problems: tuple[str, ...] = ()
    """The codes of the problems that reading it may raise."""


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """The media types that a route can answer with, as the annotation of a parameter that is the chosen one."""

    kinds: tuple[str, ...]
    """The first is for who does not care."""


IdempotencyKey = Annotated[
    str | None,
    Header(
        "Idempotency-Key",
        idempotency_key,
        {"type": "string", "pattern": f"^{_KEY.pattern}$"},
        "The same key and body again have no second effect and name the same run. Kept as long as that.",
        problems=("invalid_idempotency_key",),
    ),
]
PreferredWait = Annotated[
    int,
    Header(
        "Prefer",
        preferred_wait,
        {"type": "string", "examples": ["wait=30", "respond-async"]},
        "`wait=N`: answer 200 with the run when it ends within N seconds (60 at most).",
    ),
]
ExpectedVersion = Annotated[
    int | None,
    Header(
        "If-Match",
        expected_version,
        {"type": "string", "pattern": rf"^(\*|{_VERSION_TAG.pattern})$", "examples": ['"7"', "*"]},
        "Only if this is still the newest version: the `ETag` that was read, or `*` for any. `If-None-Match: *`: only "
        "if there is none.",
        problems=("invalid_precondition",),
    ),
]
LastEventId = Annotated[
    int | None,
    Header(
        "Last-Event-ID",
        last_event_id,
        {"type": "string", "pattern": "^[0-9]{1,15}$"},
        "Go on behind this event; wins over `after`.",
        problems=("invalid_cursor",),
    ),
]
