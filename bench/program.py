"""What the programs of the bench have in common: they print a report, and end with one sentence if they cannot."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from pathlib import Path

from bench.asked import BenchError
from bench.report import Table, heading
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


Part = Callable[[bool], Awaitable[list[Table]]]
"""Something that is measured, quickly or not."""
Report = Callable[[list[str], bool, str], Coroutine[None, None, str]]
"""The report on parts with these names, quick or not, for the person who gave this command."""


def main(module: str, about: str | None, parts: Collection[str], report: Report, alone: Collection[str] = ()) -> None:
    """Measure what the command line asks for: one part, or all but those that are only measured ``alone``. ``about`` is
    the docstring of the program."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(about or "").partition(":")[2])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a first look")
    parser.add_argument("--only", choices=parts, metavar="PART", help=f"one of {', '.join(parts)}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the report there as well")
    given = parser.parse_args()
    names = [given.only] if given.only else [name for name in parts if name not in alone]
    run(report(names, given.quick, " ".join([f"python -m {module}", *sys.argv[1:]])), given.out)


def report_on(parts: Mapping[str, Part], title: str, targets: str) -> Report:
    """The report that is the tables of parts, one part after the other; it says on stderr what it is at."""

    async def report(names: list[str], quick: bool, command: str) -> str:
        tables: list[Table] = []
        for name in names:
            begun = time.monotonic()
            print(f"bench: {name} …", end="", file=sys.stderr, flush=True)
            tables += await parts[name](quick)
            print(f" {time.monotonic() - begun:.0f} s", file=sys.stderr)
        return "\n\n".join([f"# {title}", heading(command), targets, *(table.markdown() for table in tables)]) + "\n"

    return report
