"""The bank of `bench.refund`: what it paid is counted here, by whichever request. It imports nothing that takes time.

The first time that it has paid an order, the asking process dies of SIGKILL before it can note it: between the effect
and the checkpoint.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path


def pay(order: str, key: str = "") -> str:
    """Pay an order back; with a ``key`` once, however often it is asked for."""
    bank = Path(os.environ["BENCH_BANK"])
    if not key or _first(bank / f"key-{key}"):
        line = os.open(bank / "paid", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(line, f"{order}\n".encode())
        os.close(line)
    if _first(bank / f"died-{order}"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{order} is paid back"


def paid(bank: Path) -> Counter[str]:
    """How often it paid each order back."""
    return Counter((bank / "paid").read_text().split()) if (bank / "paid").exists() else Counter()


def _first(mark: Path) -> bool:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
