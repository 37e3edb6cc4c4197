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


def times(what: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """The median and the 99th percentile of times; the ratio is that of the medians."""
    return Row(what, _middle_and_worst(ours), _middle_and_worst(theirs), _ratio(median(ours), median(theirs)))


def _middle_and_worst(values: Sequence[float]) -> str:
    return f"{number(median(values))} / {number(percentile(values, 99))}"


def _ratio(ours: float, theirs: float, *, more: bool = False) -> float:
    return ours / theirs if more else theirs / ours
