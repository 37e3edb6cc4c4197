"""The windows of statistics: how far back each goes, and how finely."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

WindowName = Literal["hour", "day", "week"]
_SPARE: Final = 4
"""Places that a ring has beyond its window: a line may be folded late, and clocks of readers differ."""


class Window(NamedTuple):
    """The last so many spans, the present one among them."""

    name: WindowName
    seconds: int
    """The length of a span."""
    spans: int

    def number(self, ms: int) -> int:
        """The number of the span that a time is in."""
        return ms // (self.seconds * 1000)

    def place(self, number: int) -> str:
        """The field of a span, which others had before it and will have behind it."""
        return f"{self.name}:{number % (self.spans + _SPARE)}"

    @property
    def places(self) -> tuple[str, ...]:
        """All of these fields."""
        return tuple(f"{self.name}:{place}" for place in range(self.spans + _SPARE))


WINDOWS: Final = {
    window.name: window for window in (Window("hour", 60, 60), Window("day", 900, 96), Window("week", 7200, 84))
}
LASTS: Final = 8 * 86400
"""Seconds for which tallies stay after the last one of a tenant was written: longer than the longest window."""
