"""The garbage collector of a process that serves for days."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (5_000, 5, 40)
"""Objects more than there were before the youngest are looked through; so many of these before the next older ones,
and of those before all. Python's own (700, 10, 10) fit a program that begins with nothing: here a thousand requests or
steps in flight are hundreds of thousands of objects, and were looked through again and again, which holds the loop for
100 ms each time. Fifty steps in flight are a few thousand: most of them are over before anybody looks at five
thousand, where at a thousand each was looked at. More at a time would hold the loop for longer. What is let go is
nearly always freed without the collector, since no step is a cycle (tests/process/test_growth.py); a million objects in
cycles stay at most."""


def spare_loaded() -> None:
    """Leave out of every later collection what is there by now, and collect as a server should.

    What is imported stays: to look through it again and again holds everything for 100 ms each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
