"""What a chaos test is told by the environment."""

from __future__ import annotations

import os
import random


def first_seed() -> int:
    """The one that was asked for with PALAVER_CHAOS_SEED, or any."""
    return int(os.environ.get("PALAVER_CHAOS_SEED", "0")) or random.randrange(1, 1 << 30)


def seeded() -> tuple[int, random.Random]:
    """The seed of this test, which is told, and its chance."""
    seed = first_seed()
    print(f"PALAVER_CHAOS_SEED={seed}")
    return seed, random.Random(seed)


def scaled(count: int) -> int:
    """How many faults, runs or seconds of chaos: PALAVER_CHAOS_SCALE times ``count``."""
    return max(1, round(count * float(os.environ.get("PALAVER_CHAOS_SCALE", "1"))))
