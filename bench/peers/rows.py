"""Rows of the tables: what each peer came to, with its range, and how many times better Palaver is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.report import number, spread

_AS_GOOD: Final = 0.95
Values = Sequence[float] | str
"""A value for each round, in their order; or what is said in place of one."""


@dataclass(frozen=True)
class Row:
    """What was measured, by the peer's name; ``more`` of it is better, or less; None: it is not to be compared."""

    what: str
    values: Mapping[str, Values]
    more: bool | None = False
    detail: bool = False
    """Beside a row that says the same: where Palaver loses, that one tells of it."""
    headline: bool = False
    """One of the ten with which the report begins."""

    def cells(self, names: Sequence[str]) -> list[str]:
        """The medians and ranges, in this order."""
        return [self.what, *(_cell(self.values.get(name, "-")) for name in names)]

    def medians(self, names: Sequence[str]) -> list[str]:
        """The same without the ranges."""
        return [self.what, *(_middle(self.values.get(name, "-")) for name in names)]

    def ratios(self, ours: str, theirs: str) -> list[float]:
        """How many times better ours is, by round; none where one of them has no value. Rounds are interleaved, so that
        what each ratio divides was measured at about the same time."""
        one, other = self.values.get(ours, ""), self.values.get(theirs, "")
        if self.more is None or isinstance(one, str) or isinstance(other, str):
            return []
        pairs = zip(one, other, strict=False)
        if self.more:
            return [mine / its for mine, its in pairs if its]
        return [its / mine for mine, its in pairs if mine]


def ratio_cell(ratios: Sequence[float]) -> str:
    """The median ratio and its range, in bold where Palaver does worse."""
    if not ratios:
        return "-"
    middle, least, most = median(ratios), min(ratios), max(ratios)
    shown = f"{middle:.2f}" if middle >= 1 else f"**{middle:.2f}**"
    return shown if len(ratios) == 1 else f"{shown} ({least:.2f} to {most:.2f})"


def lost(rows: Sequence[Row], ours: Sequence[str], other: str) -> str:
    """What the other does better than one of ``ours``, by more than 5 % of the median; empty if there is nothing."""
    said = []
    for row in rows:
        found = {name: median(ratios) for name in ours if (ratios := row.ratios(name, other))}
        worse = [f"{ratio:.2f} with {name.rpartition(', ')[2]}" for name, ratio in found.items() if ratio < _AS_GOOD]
        if worse and not row.detail:
            said.append(f"{row.what}: {', '.join(worse)}")
    return "; ".join(said)


def _cell(values: Values) -> str:
    return values if isinstance(values, str) else spread(values)


def _middle(values: Values) -> str:
    return values if isinstance(values, str) else number(median(values))
