"""The SDK without I/O: a flow says what to do next, a driver does it and answers.

Every method of the clients is one generator that yields these effects and returns (or emits) its result.
`palaver.client.sync` and `palaver.client.aio` are the two drivers; nothing else knows which one it is.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from palaver.actions import ToolOutput
from palaver.client.functions import FunctionCall

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request, relative to the API's address."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """JSON; None for no body."""
    repeatable: bool = True
    """Whether sending it twice does no more than sending it once."""
    run_id: str | None = None
    """The run that it is about."""


@dataclass(frozen=True, slots=True)
class Response:
    """What the API answered. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer, or not all of it."""

    reason: str
    sent: bool
    """Whether the server may have got the request."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send and read the whole answer: a `Response` or `Lost`. ``timeout``: seconds of silence allowed."""

    request: Request
    timeout: float


@dataclass(frozen=True, slots=True)
class Open:
    """Send and read a 200's head only: a `Response` or `Lost`. Closes what was open before."""

    request: Request
    timeout: float
    """Seconds for the connection."""
    silence: float
    """Seconds that may pass without a byte."""


@dataclass(frozen=True, slots=True)
class Read:
    """The next bytes of what is open; empty at its end; or `Lost`."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Begin:
    """Call a function of the user's, beside everything else."""

    call: FunctionCall


@dataclass(frozen=True, slots=True)
class Finish:
    """Wait for one of the calls that were begun; the call and its `ToolOutput`."""


@dataclass(frozen=True, slots=True)
class Emit(Generic[T]):
    """Hand an item to whoever iterates."""

    item: T


Finished: TypeAlias = tuple[FunctionCall, ToolOutput]
Effect: TypeAlias = Send | Open | Read | Sleep | Begin | Finish
Answer: TypeAlias = Response | Lost | bytes | Finished | None

Flow: TypeAlias = Generator[Effect, Any, T]
"""Returns a T."""
Stream: TypeAlias = Generator[Effect | Emit[T], Any, None]
"""Emits Ts."""
