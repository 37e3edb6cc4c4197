"""What the programs of the bench have in common: they print a report, and end with one sentence if they cannot."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path

from bench.asked import BenchError
from docs.wrap import wrapped


def run(report: Coroutine[None, None, str], out: Path | None) -> None:
    """Print the report, and write it to ``out`` as well. Raises SystemExit where there is none."""
    if sys.platform != "linux":
        sys.exit("bench: CPU time is read from /proc, which only Linux has")
    try:
        text = asyncio.run(report)
    except BenchError as error:
        sys.exit("\n".join([f"bench: {error}", *getattr(error, "__notes__", ())]))
    except KeyboardInterrupt:
        sys.exit("bench: stopped")
    if out:
        out.write_text(wrapped(text))
    print(text, end="")
