"""The trace that a run belongs to, as W3C Trace Context has it: decided when the run is submitted, and stored with it.

Each worker of the run finds the same trace there; the ids of its spans follow from what they are
spans of. So the same span has the same id, whichever process sends it and however often (ADR 0042).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import Final, Self
from urllib.parse import unquote

from palaver.errors import ConfigurationError
from palaver.late import dataclass
from palaver.secrets.redaction import register_secrets

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables with the address that traces are sent to: tracing is on when one of them is set."""
HEADERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""Variables with the headers that are sent with them, which may be keys."""
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"
_SAMPLERS: Final = ("always_on", "always_off", "traceidratio")
_PARENT: Final = "parentbased_"
_TRACEPARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)


@dataclass(frozen=True, slots=True)
class Parent:
    """The span of the caller's that a run is a part of."""

    trace_id: str
    span_id: str
    sampled: bool

    @classmethod
    def read(cls, traceparent: str) -> Self | None:
        """From the value of a ``traceparent`` header; None if it is none, as W3C Trace Context has it."""
        match = _TRACEPARENT.fullmatch(traceparent)
        if not match or match["version"] == "ff" or (match["version"] == "00" and match["more"]):
            return None
        if not int(match["trace"], 16) or not int(match["span"], 16):
            return None
        return cls(match["trace"], match["span"], bool(int(match["flags"], 16) & 1))


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace in a run's record, and the span of the run itself, the root of all of its others."""

    trace_id: str
    """32 hexadecimal digits."""
    root_id: str
    """The id of the run's span, 16 hexadecimal digits."""
    sampled: bool
    """True if spans are written at all."""
    caller_id: str = ""
    """The id of the caller's span, which the run's is a child of; empty without a caller."""

    @classmethod
    def from_stored(cls, text: str) -> Self:
        """Read what ``stored`` wrote."""
        own, _, caller = text.partition(" ")
        _, trace_id, root_id, flags = own.split("-")
        return cls(trace_id, root_id, flags == "01", caller)

    @property
    def stored(self) -> str:
        """``traceparent`` of the run's span, and the caller's id behind a blank. Scripts look for its flag."""
        own = self.traceparent(self.root_id)
        return f"{own} {self.caller_id}" if self.caller_id else own

    def traceparent(self, span_id: str) -> str:
        """The value of the header that says: a child of this span of the trace."""
        return f"00-{self.trace_id}-{span_id}-{'01' if self.sampled else '00'}"

    def span_id(self, step: str, fence: int, call_id: str = "") -> str:
        """Return the span id of an attempt of a step, which its fence token names, or of a call that was made within
        it."""
        of = f"{self.trace_id} {self.root_id} {step} {fence} {call_id}"
        return blake2b(of.encode(), digest_size=8).hexdigest()


class Tracing:
    """The way in which this process begins traces: ``OTEL_TRACES_SAMPLER`` decides what is sampled, as OpenTelemetry
    defines it."""

    def __init__(self, sampler: str = "parentbased_always_on", ratio: float = 1.0) -> None:
        self._asks_parent = sampler.startswith(_PARENT)
        share = {"always_on": 1.0, "always_off": 0.0}.get(sampler.removeprefix(_PARENT), ratio)
        self._below = round(share * (1 << 64))

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """As the environment says; None if tracing is off. What headers have is secret from here on.

        Raises:
            ConfigurationError: a variable says something that Palaver cannot do.
        """
        if not is_on(environment):
            return None
        register_secrets(_secrets(environment))
        for name in _PROTOCOLS:
            if environment.get(name, _PROTOCOL) not in ("", _PROTOCOL):
                raise ConfigurationError(
                    f"{name}: Palaver sends traces as {_PROTOCOL} only; set that, and an endpoint that takes it "
                    "(a collector's is port 4318)"
                )
        sampler = environment.get("OTEL_TRACES_SAMPLER") or "parentbased_always_on"
        known = [f"{prefix}{kind}" for prefix in (_PARENT, "") for kind in _SAMPLERS]
        if sampler not in known:
            raise ConfigurationError(f"OTEL_TRACES_SAMPLER: Palaver has {', '.join(known)}")
        return cls(sampler, _ratio(environment.get("OTEL_TRACES_SAMPLER_ARG") or "1"))

    def begin(self, parent: Parent | None) -> Trace:
        """The trace of a new run: the caller's, or one of its own."""
        trace_id = parent.trace_id if parent else secrets.token_hex(16)
        sampled = int(trace_id[16:], 16) < self._below
        if parent and self._asks_parent:
            sampled = parent.sampled
        return Trace(trace_id, secrets.token_hex(8), sampled, parent.span_id if parent else "")

    @contextmanager
    def request(self, traceparent: str | None) -> Iterator[Parent | None]:
        """Handle a request: runs that are submitted within belong to the trace that its header names."""
        parent = Parent.read(traceparent) if traceparent else None
        token = _request.set((self, parent))
        try:
            yield parent
        finally:
            _request.reset(token)


_request: Final[ContextVar[tuple[Tracing, Parent | None] | None]] = ContextVar("request", default=None)


def new_trace() -> Trace | None:
    """The trace of a run that is submitted now; None if tracing is off, or the run has no caller."""
    request = _request.get()
    return request[0].begin(request[1]) if request else None


def is_on(environment: Mapping[str, str]) -> bool:
    """Tell whether traces are to be sent."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(environment.get(name) for name in ENDPOINTS)


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """The values of headers, as they are written and as they are sent, and their last words: ``Basic …``."""
    for name in HEADERS:
        for header in environment.get(name, "").split(","):
            value = header.partition("=")[2].strip()
            yield from (value, unquote(value), unquote(value).rpartition(" ")[2])


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ConfigurationError("OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1")
    return ratio
