"""The frames of a script: what lies behind each other at its left edge, cut into functions within functions.

To make a function, Lua 5.1 looks for each local of the same frame that it uses by walking over all that were captured
there before (``luaF_findupval``), and copies what is of a frame around. In one frame that walk is half of the time of a
script with a hundred functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final, NamedTuple

MOST_CAPTURED: Final = 60
"""Locals of others that a function of Lua 5.1 may use (LUAI_MAXUPVALUES)."""
_FEWEST: Final = 8
"""Functions of a frame. One more frame is one more function to make, with all names that cross its edge."""


class Line(NamedTuple):
    """The origin of a line of a script."""

    file: str
    number: int


class Source(NamedTuple):
    """A script as Redis gets it."""

    text: str
    lines: Sequence[Line]


class Section(NamedTuple):
    """Statements of a script that stay together."""

    source: Source
    declares: Set[str]
    """Locals that are seen behind it."""
    words: Set[str]
    functions: int
    """The number of functions that it makes."""


def joined(*sources: Source) -> Source:
    """Sources behind each other."""
    return Source("".join(source.text for source in sources), [line for source in sources for line in source.lines])


def framed(head: Sequence[Section], sections: Sequence[Section]) -> Source:
    """A script of ``sections``. What the ``head`` has behind its first line is read where it is first needed."""
    sections = [*head[:1], *_read_late(head[1:], sections)]
    needed = [set[str]()]
    for section in reversed(sections):
        needed.append(needed[-1] | section.words)
    declared, functions, cuts = set[str](), 0, 0
    sources = list[Source]()
    for section, behind in zip(sections, reversed(needed), strict=False):
        if functions >= _FEWEST and len(declared & behind) <= MOST_CAPTURED:
            sources.append(Source("return (function()\n", section.source.lines[:1]))
            functions, cuts = 0, cuts + 1
        sources.append(section.source)
        declared |= section.declares
        functions += section.functions
    last = sources[-1].lines[-1]
    return joined(*sources, *(Source("end)()\n", [last]) for _ in range(cuts)))


def _read_late(head: Sequence[Section], sections: Sequence[Section]) -> Iterator[Section]:
    for section in sections:
        needed = [line for line in head if not section.words.isdisjoint(line.declares)]
        yield from needed
        head = [line for line in head if line not in needed]
        yield section
