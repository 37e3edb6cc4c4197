"""Names that may have been meant."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

_HINTED: Final = 32
"""Characters of a name that others are compared with."""
_COMPARED: Final = 3
"""Names that share most with it, which are compared in full."""
_PART: Final = 4
"""Letters of a name that may have been meant for another that has them: fewer are in many."""
_LISTED: Final = 10


def some_of(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that looks most like ``name``; empty when none does."""
    traits = _traits(name[:_HINTED])

    def likeness(candidate: str) -> tuple[int, int, str]:
        # Of those that have as much of it, those that have least besides; then one order, however they come.
        theirs = _known_traits(candidate)
        return len(traits & theirs), -len(theirs), candidate

    nearest = heapq.nlargest(_COMPARED, map(str, known), key=likeness)
    close = difflib.get_close_matches(name[:_HINTED], nearest, n=1) or [
        other
        for other in nearest
        if len(name) >= _PART and (name.lower() in other.lower() or other.lower() in name.lower())
    ]
    return f"; did you mean {close[0]!r}?" if close else ""


def _traits(name: str) -> frozenset[str]:
    """Its letters and its pairs of letters: to compare these is much cheaper than to compare the names."""
    return frozenset((*name, *map("".join, pairwise(name))))


@lru_cache(maxsize=4096)
def _known_traits(name: str) -> frozenset[str]:
    return _traits(name)
