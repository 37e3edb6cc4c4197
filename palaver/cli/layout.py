"""Lists that fit the terminal: facts stay whole, in a second line if need be, and the text behind them gives way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from palaver.cli.text import plain

_GAP: Final = 2
"""Blanks between two columns, and before a line that goes on."""
_READABLE: Final = 24
"""Characters below which a text gets a line of its own."""

Row = Sequence[str]


class _Column(NamedTuple):
    """The place of a column in the lines of a row, and its lines of a header."""

    cell: int
    line: int
    width: int
    header: Sequence[str]


def print_list(to: Console, names: Sequence[str], rows: Iterable[Row], *, texts: int = 0) -> None:
    """Print a list: one line a row, or on a terminal as many as it needs there. The last ``texts`` columns are texts,
    which give way."""
    cells = [[plain(cell) for cell in row] for row in rows]
    facts = len(names) - texts
    if not to.is_terminal:
        columns = [
            _Column(at, 0, max(cell_len(text) for text in (name, *(row[at] for row in cells))), [name])
            for at, name in enumerate(names)
        ]
    else:
        if texts:
            names = [*names[:facts], ", ".join(names[facts:])]
            cells = [[*row[:facts], " · ".join(filter(None, row[facts:]))] for row in cells]
        columns = _placed(names, cells, facts, to.width)
    for line in _header(columns):
        to.print(Text(line, "bold"), soft_wrap=True)
    for row in cells:
        for line in _lines(columns, row):
            to.print(Text(line), soft_wrap=True)


def _placed(names: Sequence[str], rows: Sequence[Row], facts: int, width: int) -> list[_Column]:
    """The columns that have anything in them; with names in several lines where that saves lines."""
    used = [number for number in range(len(names)) if any(row[number] for row in rows)]
    whole = _packed(used, [[name] for name in names], rows, facts, width)
    broken = _packed(used, [name.split() for name in names], rows, facts, width)
    return whole if whole[-1].line <= broken[-1].line else broken


def _packed(
    used: Sequence[int], headers: Sequence[Sequence[str]], rows: Sequence[Row], facts: int, width: int
) -> list[_Column]:
    columns = list[_Column]()
    line = taken = 0
    for number in used:
        longest = max(cell_len(row[number]) for row in rows)
        needed = wide = max(longest, *map(cell_len, headers[number]))
        if number >= facts:
            needed = min(longest, _READABLE)
        if columns and taken + needed > width:
            line, taken = line + 1, _GAP
        if number >= facts:
            wide = width - taken
        columns.append(_Column(number, line, wide, headers[number]))
        taken += wide + _GAP
    return columns


def _header(columns: Sequence[_Column]) -> Iterator[str]:
    for line in range(columns[-1].line + 1):
        here = [column for column in columns if column.line == line]
        deep = max(len(column.header) for column in here)
        for at in range(deep):
            words = (("",) * (deep - len(column.header)) + tuple(column.header) for column in here)
            yield _joined(line, ((column, header[at]) for column, header in zip(here, words, strict=True)))


def _lines(columns: Sequence[_Column], row: Row) -> Iterator[str]:
    for line in range(columns[-1].line + 1):
        here = [column for column in columns if column.line == line]
        if text := _joined(line, ((column, row[column.cell]) for column in here)):
            yield text


def _joined(line: int, cells: Iterable[tuple[_Column, str]]) -> str:
    text = (" " * _GAP).join(_cut(cell, column.width) for column, cell in cells).rstrip()
    return " " * (_GAP if line else 0) + text if text else ""


def _cut(cell: str, width: int) -> str:
    text = Text(" ".join(cell.split()))
    text.truncate(width, overflow="ellipsis", pad=True)
    return text.plain
