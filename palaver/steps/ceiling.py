"""The most that a retry policy may allow: bounds of every policy, and ceilings that somebody sets."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from palaver.errors.exceptions import ConfigurationError

MAX_ATTEMPTS: Final = 100
MAX_SECONDS: Final = 86_400.0
"""Upper bounds of the values in a policy. Clients send policies with their runs, and every run must end."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that a policy may allow. None: any.

    Raises ConfigurationError for a value of the wrong type or out of bounds.
    """

    attempts: int | None = None
    """Attempts of a step, the first one included."""
    max_elapsed: float | None = None
    """Seconds, as the next."""
    patience: float | None = None

    def __post_init__(self) -> None:
        if self.attempts is not None:
            whole_attempts(self.attempts)
        for name in ("max_elapsed", "patience"):
            if getattr(self, name) is not None:
                within(name, getattr(self, name), 0, MAX_SECONDS)

    def below(self, other: Ceiling) -> Ceiling:
        """Return the lower of both."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in CEILING}
        return Ceiling(
            **{name: min((most for most in pair if most is not None), default=None) for name, pair in pairs.items()}
        )

    def dump(self) -> dict[str, Any]:
        """The ceiling as JSON, with what it limits."""
        return {name: most for name in CEILING if (most := getattr(self, name)) is not None}


CEILING: Final = tuple(entry.name for entry in fields(Ceiling))
"""The fields of a ceiling."""
UNLIMITED: Final = Ceiling()


def whole_attempts(value: object) -> None:
    """Raise ConfigurationError unless ``value`` can be a number of attempts."""
    if not isinstance(value, int):
        raise ConfigurationError(f"must be a whole number, not {value!r:.40}", pointer="/attempts")
    within("attempts", value, 1, MAX_ATTEMPTS)


def within(name: str, value: object, low: float, high: float) -> None:
    """Raise ConfigurationError unless ``value`` is a number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        reason = f"must be a number from {low:g} to {high:g}, not {value!r:.40}"
        raise ConfigurationError(reason, pointer=f"/{name}")
