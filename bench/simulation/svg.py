"""Line charts as SVG, small enough to be read in a diff."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final, NamedTuple

_WIDTH, _HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 200, 40, 44
_POINTS: Final = 240
"""Points of a line, at most."""
_COLOURS: Final = ("#0b62a4", "#c2410c", "#15803d", "#7e22ce", "#525252")


class Line(NamedTuple):
    """A curve; ``values`` by the second, or at the places of ``at``."""

    name: str
    values: Sequence[float]
    at: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Some lines over the time."""

    name: str
    """Of its file."""
    title: str
    unit: str
    lines: Sequence[Line]
    marks: Sequence[tuple[float, str]] = ()
    """Moments, and what happens then."""
    logarithmic: bool = False

    def svg(self) -> str:
        """The chart, as a file."""
        spans = [max(line.at) if line.at else len(line.values) - 1 for line in self.lines]
        scale = _Scale(max(spans), max(max(line.values) for line in self.lines), logarithmic=self.logarithmic)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'font-family="sans-serif" font-size="12"><title>{escape(self.title)}</title>',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
            _text(_LEFT, 18, self.title, size=14),
            _text(_LEFT, 33, self.unit, colour="#525252"),
            *scale.grid(),
        ]
        for at, what in self.marks:
            x = scale.x(at)
            parts.append(f'<path d="M{x:.0f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#a3a3a3" stroke-dasharray="3 3"/>')
            parts.append(_text(x + 3, _TOP + 11, what, colour="#525252"))
        for number, (line, colour) in enumerate(zip(self.lines, _COLOURS, strict=False)):
            parts.append(f'<path d="{scale.path(line)}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
            y = _TOP + 14 + 18 * number
            x = _WIDTH - _RIGHT + 14
            parts.append(f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="3"/>')
            parts.append(_text(x + 24, y, line.name))
        return "\n".join([*parts, "</svg>", ""])


class _Scale:
    """Places on the paper. What is below its least decade is on the ground of a logarithmic one."""

    def __init__(self, seconds: float, most: float, *, logarithmic: bool) -> None:
        self._seconds = seconds or 1.0
        self._decades = 0
        if logarithmic:
            self._highest = ceil(log10(max(most, 1e-9)))
            self._decades = min(5, max(2, self._highest + 4))
            self._ticks = [10.0 ** (self._highest - i) for i in range(self._decades + 1)]
        else:
            step = _step(most / 4)
            self._ticks = [step * i for i in range(ceil(most / step) + 1)] if most > 0 else [0.0, 1.0]
        self._top = self._ticks[0] if logarithmic else self._ticks[-1]

    def x(self, at: float) -> float:
        """Of a moment."""
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * at / self._seconds

    def y(self, value: float) -> float:
        """Of a value."""
        share = value / self._top
        if self._decades:
            share = max(0.0, 1 + log10(max(share, 1e-12)) / self._decades)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share

    def grid(self) -> Sequence[str]:
        """Lines, and numbers at them."""
        parts = []
        for tick in self._ticks:
            y = self.y(tick)
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#e5e5e5"/>')
            parts.append(_text(_LEFT - 6, y + 4, _number(tick), anchor="end"))
        step = _step(self._seconds / 6)
        for i in range(floor(self._seconds / step) + 1):
            x = self.x(step * i)
            parts.append(_text(x, _HEIGHT - _BOTTOM + 16, _number(step * i), anchor="middle"))
        parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, "seconds", anchor="middle", colour="#525252"))
        return parts

    def path(self, line: Line) -> str:
        """A curve. Of many points that fall together the highest is shown."""
        at = line.at or range(len(line.values))
        every = max(1, ceil(len(line.values) / _POINTS))
        places = [(at[begin], max(line.values[begin : begin + every])) for begin in range(0, len(line.values), every)]
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(value):.1f}" for x, value in places)


def _step(about: float) -> float:
    """A round number that is no smaller."""
    power = 10.0 ** floor(log10(about)) if about > 0 else 1.0
    return next(power * factor for factor in (1, 2, 3, 5, 10) if power * factor >= about)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#171717", size: int = 12) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(text)}</text>'
    )
