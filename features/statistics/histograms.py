"""Times in ms, counted in bounded histograms: edges grow by the fourth root of 2, from a millisecond to a day and a
half.

A percentile is told as the middle of its bucket, by ratio: at most 9.1 % from the time that has its rank, between 1 ms
and the last edge.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from math import ceil
from typing import Final

_PER_DOUBLING: Final = 4
EDGES: Final = tuple(2 ** (n / _PER_DOUBLING) for n in range(27 * _PER_DOUBLING + 1))
"""The upper edges of the buckets, ms."""
ERROR: Final = 2 ** (1 / _PER_DOUBLING / 2) - 1
"""The most that a percentile may be off, as a part of it."""

Histogram = Mapping[int, int]
"""The number of times in each bucket, by that of the bucket."""


def bucket_of(ms: int) -> int:
    """The number of the bucket that a time is in; the last one has all that are longer."""
    return min(bisect_left(EDGES, ms), len(EDGES) - 1)


def percentile(histogram: Histogram, percent: float) -> float | None:
    """The time (ms) that so many percent are not above: that of the nearest rank. None without any."""
    rank, seen = ceil(percent / 100 * sum(histogram.values())), 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= rank > 0:
            return EDGES[bucket] / (1 + ERROR) if bucket else EDGES[0]
    return None
