"""The options of ``@tool`` about its service: which failures are tried again, and limits for all workers together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Protocol, runtime_checkable

from palaver.errors import ConfigurationError, ErrorClass
from palaver.errors.vocabulary import TOOL_CLASSES
from palaver.late import dataclass

_LIMIT_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST: Final = 1_000_000
_EXAMPLE: Final = "retry=RetryPolicy({ErrorClass.TIMEOUT: Rule(attempts=3)})"

_GATE: Final = "tool:"
"""No provider's name has a colon, but that of an agent's own endpoint, which begins otherwise."""
Errors = Mapping[type[Exception], ErrorClass]
"""The classes of a tool's own exceptions."""


@runtime_checkable
class Retries(Protocol):
    """A ``RetryPolicy`` (``palaver.steps.retry``), as far as a declaration needs it."""

    @property
    def rules(self) -> Mapping[ErrorClass, Any]:
        """The rules, by class."""

    def dump(self) -> dict[str, Any]:
        """Return the policy as JSON."""


@dataclass(frozen=True, slots=True)
class Service:
    """The options of one tool.

    Raises:
        ConfigurationError: one of them does not fit.
    """

    retry: Retries | None = None
    """The tool's policy: with one, what its service has not taken is tried again, and what it may have taken if the
    policy names the class."""
    errors: Errors = field(default_factory=dict)
    limit_key: str | None = None
    """The service, by a name of the tools' own: all tools that name it wait for it together."""
    max_in_flight: int | None = None
    """Calls of the service at a time, of all workers together."""
    per_minute: int | None = None
    """Calls that begin in a minute; up to a tenth more in bursts."""

    def __post_init__(self) -> None:
        if self.retry is not None:
            _check_policy(self.retry)
        _check_errors(self.errors)
        if self.limit_key is not None and not (
            isinstance(self.limit_key, str) and _LIMIT_KEY.fullmatch(self.limit_key)
        ):
            raise ConfigurationError(f"limit_key: 1 to 64 letters, digits, _, . and -, not {self.limit_key!r:.80}")
        for name in ("max_in_flight", "per_minute"):
            most = getattr(self, name)
            if most is not None and not (type(most) is int and 1 <= most <= _MOST):
                raise ConfigurationError(f"{name}: a whole number from 1 to {_MOST:,}, not {most!r:.40}")

    def __bool__(self) -> bool:
        return self.retry is not None or bool(self.errors or self.limit_key or self.max_in_flight or self.per_minute)

    def key_of(self, tool: str) -> str | None:
        """Return the limit key of the tool of this name; its own name, if it has limits and names no service."""
        return self.limit_key or (tool if self.max_in_flight or self.per_minute else None)


def gate_of_service(limit_key: str) -> str:
    """Return the name that the gate of a service has among those of providers."""
    return _GATE + limit_key


def _check_policy(retry: object) -> None:
    if not isinstance(retry, Retries):
        raise ConfigurationError(f"retry: a RetryPolicy, not {retry!r:.60}: {_EXAMPLE}")
    for error_class, rule in retry.rules.items():
        if error_class not in TOOL_CLASSES:
            known = ", ".join(TOOL_CLASSES)
            raise ConfigurationError(f"retry: no call of a tool fails with {error_class}; there are: {known}")
        if rule.then != "fail":
            raise ConfigurationError(f"retry: {error_class}: a tool has no fallback model")


def _check_errors(errors: object) -> None:
    if not isinstance(errors, Mapping):
        raise ConfigurationError("errors: a mapping such as {MyError: ErrorClass.RATE_LIMITED}")
    for kind, error_class in errors.items():
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ConfigurationError(f"errors: {kind!r:.80} is no class of exceptions")
        if error_class not in TOOL_CLASSES:
            known = ", ".join(TOOL_CLASSES)
            raise ConfigurationError(f"errors: {kind.__name__}: a call fails with one of {known}")
