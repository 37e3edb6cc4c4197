"""A response that has begun, and the key that its request has."""

from __future__ import annotations

from palaver.late import dataclass
from palaver.schemas.models import Run

from .ids import ResponseId


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key under which a request has its effect once."""

    text: str | None
    chosen: bool
    """True if the client has chosen it; else it is made of the request."""
    request: str | None = None
    """The digest of the request, if the run is to be found by the key whatever has come behind it since."""


@dataclass(frozen=True, slots=True)
class BegunResponse:
    """A response that has begun."""

    response: ResponseId
    run: Run
    replayed: bool = False
    """An earlier request with the same key has begun it."""
    answers: bool = False
    """It goes on with what the input answers: it is no new run."""
