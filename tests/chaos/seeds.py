"""What a chaos test is told by the environment."""

from __future__ import annotations

import os
import random


def seeded() -> tuple[int, random.Random]:
    """The seed of this test, PALAVER_CHAOS_SEED if it is set, and its chance."""
    seed = int(os.environ.get("PALAVER_CHAOS_SEED", "0")) or random.randrange(1, 1 << 30)
    print(f"PALAVER_CHAOS_SEED={seed}")
    return seed, random.Random(seed)


def asked_for(default: int) -> int:
    """How many faults the chaos tier makes."""
    return int(os.environ.get("PALAVER_CHAOS_KILLS", default))
