"""What tests ask about a process they started."""

from __future__ import annotations

from pathlib import Path


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waited for yet counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"
