"""`python -m bench.console [--quick] [--only PART] [--out FILE]`: the console in a browser, as Markdown tables.

Needs Chromium. Everything listens on loopback alone, in processes that end with the bench. Takes about half an hour,
with --quick five minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from bench.console import left_alone, many, night, weight
from bench.program import run
from bench.report import Table, heading

PARTS: Final[dict[str, Callable[[bool], Awaitable[list[Table]]]]] = {
    "weight": lambda quick: weight.measure(rounds=3 if quick else 15),
    "alone": lambda quick: left_alone.measure(seconds=20 if quick else 60),
    "night": lambda quick: night.measure(hours=1 if quick else 12, pages=1 if quick else 4),
    "runs": lambda quick: many.runs(10_000 if quick else 100_000),
    "events": lambda quick: many.events(1_000 if quick else 10_000),
}
TARGETS: Final = (
    "What it should show: 50 consoles that nobody touches cost the API at most 3 % of a core on any page; what a "
    "browser keeps of a page after a night is what it kept after an hour; a list of 100,000 runs opens, goes on and "
    "is filtered as one of a hundred."
)


async def measure(names: list[str], quick: bool, command: str) -> str:
    """The report on these parts."""
    tables: list[Table] = []
    for name in names:
        begun = time.monotonic()
        print(f"bench: {name} …", end="", file=sys.stderr, flush=True)
        tables += await PARTS[name](quick)
        print(f" {time.monotonic() - begun:.0f} s", file=sys.stderr)
    parts = ["# The console, measured", heading(command), TARGETS, *(table.markdown() for table in tables)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a first look")
    parser.add_argument("--only", choices=PARTS, metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the report there as well")
    given = parser.parse_args()
    command = " ".join(["python -m bench.console", *sys.argv[1:]])
    run(measure([given.only] if given.only else list(PARTS), given.quick, command), given.out)


if __name__ == "__main__":
    main()
