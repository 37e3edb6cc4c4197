"""What chaos did and found: each test adds a line to a file, PALAVER_CHAOS_REPORT, if there is one.

    python -m tests.chaos.report FILE… [--to STEM]

adds the lines of several runs up and writes STEM.md and STEM.json (default: beside the first file).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from docs.wrap import wrapped
from features.stack.redis_server import find_server
from tests.pages import ROOT

_INTRODUCTION = """# Chaos report

What `make chaos` and `make soak` did to Palaver on one machine, and what the checkers of the invariants I1 to I14
(`tests/checkers`) found. Both leave a file in `.palaver/chaos`. Those that this page adds up are in
`docs/why/chaos.jsonl`, each with the seed that repeats it (`PALAVER_CHAOS_SEED`);
`python -m tests.chaos.report docs/why/chaos.jsonl` writes the page again. *Mutants* are copies of Palaver in which one
promise is broken: all must be caught (`tests/chaos/mutants.py`). *Runs forgotten* are what Redis itself loses with
`appendfsync everysec`, in a power cut or, seldom, a crash ([durability](../how-to/redis.md#durability)).
"""


def record(
    name: str,
    *,
    seed: int,
    counts: Mapping[str, int],
    ends: Mapping[str, int] | None = None,
    seconds: Sequence[float] = (),
    violations: int = 0,
) -> None:
    """Add one line: how often each kind of fault was made, how many runs ended in which way, and times such as those
    of recoveries."""
    path = os.environ.get("PALAVER_CHAOS_REPORT")
    if not path:
        return
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    line = {
        "name": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.strip(),
        "python": platform.python_version(),
        "server": server_name(find_server()),
        "cpus": os.cpu_count(),
        "seed": seed,
        "counts": {**counts, **{f"runs {status}": count for status, count in (ends or {}).items()}},
        "seconds": [round(each, 4) for each in seconds],
        "violations": violations,
    }
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


@cache
def server_name(program: Path) -> str:
    """Its name and version, such as ``Valkey 9.1.0``."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()
    version = next((word.removeprefix("v=") for word in said if word.startswith("v=")), "")
    return f"{said[0]} {version}".strip()


@dataclass
class Sum:
    """The lines of one name, added up. `seconds` are sorted."""

    runs: int = 0
    violations: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def add(self, line: Mapping[str, Any]) -> None:
        """One more line."""
        self.runs += 1
        self.violations += line["violations"]
        self.counts.update(line["counts"])
        self.seconds = sorted([*self.seconds, *line["seconds"]])
        if line["seed"]:
            self.seeds = sorted({*self.seeds, line["seed"]})

    def percentile(self, share: float) -> float:
        """The seconds that so great a share of all took at most: nearest rank."""
        return self.seconds[max(0, math.ceil(share * len(self.seconds)) - 1)]


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The lines of several files."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def add_up(lines: Iterable[Mapping[str, Any]], key: Callable[[str], str] = str) -> dict[str, Sum]:
    """The lines by name, or by ``key`` of it, in the order in which names come first."""
    sums: dict[str, Sum] = {}
    for line in lines:
        sums.setdefault(key(line["name"]), Sum()).add(line)
    return sums


def family(name: str) -> str:
    """The name of a test without its case: ``aimed kills: tool.done-tool`` is one of the ``aimed kills``."""
    kind = name.partition(": ")[0]
    return kind if kind.startswith("aimed kills") else name


def markdown(lines: Sequence[Mapping[str, Any]], sums: Mapping[str, Sum]) -> str:
    """The report for people."""
    seen = {name: sorted({str(line[name]) for line in lines}) for name in ("commit", "python", "server", "cpus")}
    violations = sum(each.violations for each in sums.values())
    parts = [
        _INTRODUCTION,
        f"From {min(line['at'] for line in lines)} to {max(line['at'] for line in lines)}; commit "
        f"{', '.join(seen['commit'])}; Python {', '.join(seen['python'])}; {', '.join(seen['server'])}; "
        f"{', '.join(seen['cpus'])} CPUs.\n",
        f"**{violations} violations.**\n",
        "## By test\n",
        _list(
            (f"*{name}*, {each.runs} run{'s' * (each.runs > 1)}{_violated(each)}", _counted(each))
            for name, each in add_up(lines, family).items()
        ),
    ]
    if timed := [(name, each) for name, each in sums.items() if each.seconds]:
        parts += [
            "## Seconds\n",
            _table(
                ("test", "n", "p50", "p90", "p99", "max"),
                [
                    (name, len(each.seconds), *(f"{each.percentile(p):.3f}" for p in (0.5, 0.9, 0.99, 1)))
                    for name, each in timed
                ],
            ),
        ]
    return wrapped("\n".join(parts))


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def _violated(each: Sum) -> str:
    return f", {each.violations} violations" if each.violations else ""


def _counted(each: Sum) -> Iterator[str]:
    """Its counts; kills at named points together."""
    aimed = {what: n for what, n in each.counts.items() if what.startswith("kills at ")}
    if aimed:
        yield f"kills at {len(aimed)} points {sum(aimed.values()):,}"
    yield from (f"{what} {n:,}" for what, n in each.counts.items() if what not in aimed)


def _list(rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    return "".join(f"- {name}: {', '.join(words)}\n" for name, words in rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Add the files up and write both forms of the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.report", description=main.__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--to", type=Path, metavar="STEM", help="default: the first file without its suffix")
    options = parser.parse_args(argv)
    lines = read(options.files)
    if not lines:
        parser.exit(1, "nothing was recorded\n")
    sums = add_up(lines)
    stem = options.to or options.files[0].with_suffix("")
    stem.with_suffix(".md").write_text(markdown(lines, sums))
    document = {"lines": len(lines), "tests": {name: vars(each) for name, each in sums.items()}}
    stem.with_suffix(".json").write_text(json.dumps(document, indent=2) + "\n")
    print(f"{stem.with_suffix('.md')} and {stem.with_suffix('.json')}")


if __name__ == "__main__":
    main()
