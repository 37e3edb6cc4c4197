"""Rows of the tables: what each side came to, and how many times better Palaver is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from bench.report import number, percentile, spread


class Row(NamedTuple):
    """What was measured; where the two cannot be divided there is no ratio."""

    what: str
    ours: str
    theirs: str
    ratio: float | None = None
    """Above 1 where Palaver does better."""

    def cells(self) -> tuple[str, ...]:
        """As they are shown, with what is worse in bold."""
        if self.ratio is None:
            return (self.what, self.ours, self.theirs, "")
        shown = f"{self.ratio:.1f}" if self.ratio >= 1 else f"**{self.ratio:.2f}**"
        return (self.what, self.ours, self.theirs, shown)


def both(what: str, ours: Sequence[float], theirs: Sequence[float], *, more: bool = False) -> Row:
    """Medians, with their ranges, of what should be little, or ``more``."""
    return Row(what, spread(ours), spread(theirs), _ratio(median(ours), median(theirs), more=more))


def at(percent: float, what: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """The percentile of times."""
    one, other = percentile(ours, percent), percentile(theirs, percent)
    return Row(f"{what}, p{percent:g}", number(one), number(other), _ratio(one, other))


def _ratio(ours: float, theirs: float, *, more: bool = False) -> float:
    return ours / theirs if more else theirs / ours
