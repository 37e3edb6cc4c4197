"""Rows of the tables: what each peer came to, with its range, and how many times better Palaver is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.report import spread

Values = Sequence[float] | str
"""A value for each round, in their order; or what is said in place of one."""


@dataclass(frozen=True)
class Row:
    """What was measured, by the peer's name; ``more`` of it is better, or less; None: it is not to be compared."""

    what: str
    values: Mapping[str, Values]
    more: bool | None = False
    headline: bool = False
    """One of the ten with which the report begins."""

    def cells(self, names: Sequence[str]) -> list[str]:
        """The medians and ranges, in this order."""
        return [self.what, *(_cell(self.values.get(name, "-")) for name in names)]

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


def ratio_cell(*ratios: Sequence[float]) -> str:
    """The median of each row of ratios, in bold where Palaver does worse."""
    if not any(ratios):
        return "-"
    return ", ".join(_bold(median(each)) if each else "-" for each in ratios)


def _bold(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"


def _cell(values: Values) -> str:
    return values if isinstance(values, str) else spread(values)
