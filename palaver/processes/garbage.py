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


def load_uncollected() -> None:
    """Collect nothing while the process loads what it needs, until `spare_loaded` or `share_loaded`.

    Nearly all of it stays: looking through it while it grows, and once more at the end, is a seventh of the CPU that a
    worker takes until it is ready, and finds two thousand objects of a hundred thousand.
    """
    gc.disable()


def share_loaded() -> None:
    """Leave out of every later collection what is there by now, and collect as Python does by itself.

    Children share what their parent has loaded: to look through it would copy it into each of them.
    """
    gc.freeze()
    gc.enable()


def spare_loaded() -> None:
    """Leave out of every later collection what is there by now, and collect as a server should.

    What is imported stays: to look through it again and again holds everything for 100 ms each time.
    """
    if gc.isenabled():
        gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
