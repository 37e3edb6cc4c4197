"""What makes a script dear: the largest things that get in, in a size that grows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.contract.store_driver import StoreDriver

Act = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Case:
    """``prepare`` makes a situation of a size; what it answers is the move whose script is metered."""

    script: str
    what: str
    prepare: Callable[[StoreDriver, int], Awaitable[Act]]
    most: int = 128
    """The largest size that gets in."""
    least: int = 8
    """The first of the sizes that are counted, each twice the one before; less where it takes long to prepare."""
