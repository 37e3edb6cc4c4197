"""What each process costs before it has anything to do: CPU until it is ready, and memory, with features and without.

BENCH_BESIDE names the folder of another checkout, such as of an older commit, that is measured in turns with this one;
both run with the packages of this environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import tomllib
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from bench.asked import BenchError
from bench.report import Table, number
from bench.rig import Rig
from bench.usage import Usage, proportional
from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from features.stack.readiness import accepts, answers_ok
from palaver.feature import GROUP
from palaver.processes.process_tree import children_of

_HERE: Final = Path(__file__).parents[1]
_ROLES: Final[Mapping[str, Sequence[str]]] = {"api": (), "worker": (), "tools": ("-c", "4")}
_CPU: Final = "CPU s"
_BARE: Final = "a bare Celery worker"
_CHILDREN: Final = "four children of it"
_REST: Final = 3.0
"""Seconds in which what was just started comes to rest."""
_ENDS_WITHIN: Final = 10.0
_RUNS: Final = 30
"""Runs at once, whose tools run in children: so many that all of these are started."""


class _Variant(NamedTuple):
    """A checkout, and how it is started."""

    title: str
    tree: Path
    environment: Mapping[str, str]


class _Taken:
    """What was measured, by the title of a variant and what it is of."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, unit: str, variant: str, of: str, value: float) -> None:
        """Add what one round has shown."""
        self._values[unit][variant, of].append(value)

    def memory(self, variant: str, of: str, pids: Iterable[int]) -> None:
        """Add what these processes hold now."""
        pids = [*pids]
        self.add("RSS MB", variant, of, Usage.of(*pids).rss)
        self.add("PSS MB", variant, of, proportional(*pids))

    def table(self, unit: str, variants: Sequence[str], note: str) -> Table:
        """The medians, of CPU the least; where a bare worker was measured, in brackets what is above it."""
        typical = min if unit == _CPU else median
        values = {place: typical(taken) for place, taken in self._values[unit].items()}
        bare = values.get(("", _BARE))
        table = Table(f"Starts: {unit}", ("", *variants), note=note)
        if bare is not None:
            table.rows.append((_BARE, *(number(bare) for _ in variants)))
        for of in dict.fromkeys(of for variant, of in values if variant):
            above = "" if bare is None or of == _CHILDREN else f" (+{{:.{0 if bare > 10 else 2}f}})"
            cells = [values[variant, of] for variant in variants]
            table.rows.append((of, *(number(cell) + above.format(cell - (bare or 0)) for cell in cells)))
        return table


async def measure(rounds: int) -> list[Table]:
    """Start everything of each variant in turns, so many times."""
    taken = _Taken()
    async with Rig() as rig:
        # As where it is installed: what is compiled is read, by all from one place. The first turn compiles.
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(rig.folder / "compiled")}
        variants = _variants(rig.folder, compiled)
        for turn in range(rounds + 1):
            counted = taken if turn else _Taken()
            await _bare(rig, compiled, counted)
            for variant in variants:
                await _start(rig, variant, turn, counted)
    titles = [variant.title for variant in variants]
    return [
        taken.table(
            _CPU,
            titles,
            f"The least of {rounds} starts in turns, as what else the machine does only adds to it: user and system, "
            "of `palaver api`, `worker` and `tools` until they are ready. In brackets, as below: above a worker of "
            "Celery's alone (`bench/bare.py`).",
        ),
        taken.table("RSS MB", titles, f"Medians, {_REST:g} s later; the children: once they have run tools."),
        taken.table("PSS MB", titles, "The same, where pages that several processes share are counted once in all."),
        taken.table("ms", titles, "The first run that a stack is asked for, from its submit to its answer."),
    ]


def _variants(folder: Path, environment: Mapping[str, str]) -> list[_Variant]:
    off = ",".join(f"-{name}" for name in _entry_points(_HERE)[GROUP])
    found = [
        _Variant("all features", _HERE, environment),
        _Variant("none", _HERE, {**environment, "PALAVER_FEATURES": off, "PALAVER_DIALECTS": "native"}),
    ]
    if beside := os.environ.get("BENCH_BESIDE"):
        found.insert(0, _Variant(Path(beside).name, Path(beside), environment))
    return [
        each._replace(environment={**each.environment, "PYTHONPATH": _about(folder / f"packages-{place}", each.tree)})
        for place, each in enumerate(found)
    ]


def _about(folder: Path, tree: Path) -> str:
    """Write what an installation of the checkout would say of its entry points; where to look for that first."""
    about = folder / "palaver-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: palaver\nVersion: 0\n")
    groups = _entry_points(tree)
    lines = [line for group, rows in groups.items() for line in (f"[{group}]", *map(" = ".join, rows.items()))]
    (about / "entry_points.txt").write_text("\n".join(lines))
    return str(folder)


def _entry_points(tree: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["entry-points"]
    return found


async def _bare(rig: Rig, environment: Mapping[str, str], taken: _Taken) -> None:
    options = ("-P", "threads", "-c", "4", "--without-gossip", "--without-mingle", "-l", "INFO")
    child = rig.start("celery", "-A", "bench.bare", "worker", *options, environment=environment)
    await rig.until(lambda: _is_ready(child, None), _BARE)
    taken.add(_CPU, "", _BARE, Usage.of(child.pid).cpu)
    await asyncio.sleep(_REST)
    taken.memory("", _BARE, [child.pid])
    _end([child])


async def _start(rig: Rig, variant: _Variant, turn: int, taken: _Taken) -> None:
    port, title = free_port(), variant.title
    server = rig.start_redis(f"redis-{title}-{turn}".replace(" ", "-"))
    environment = {
        **rig.environment,
        **variant.environment,
        "PALAVER_REDIS_URL": server.url,
        "PALAVER_API_PORT": str(port),
        "PALAVER_TOOLS": "bench.tools",
    }
    started: dict[str, ChildCommand] = {}
    for role, options in _ROLES.items():
        # Modules of the folder where a program is started are found before those that are installed.
        command = ("env", f"--chdir={variant.tree}", sys.executable, "-m", "palaver.cli", role, *options)
        started[role] = child = rig.start_foreign(f"{role}, {title}", command, environment)
        await rig.until(lambda: _is_ready(child, port if role == "api" else None), child.name)  # noqa: B023
        taken.add(_CPU, title, role, Usage.of(child.pid).cpu)
    await asyncio.sleep(_REST)
    for role, child in started.items():
        taken.memory(title, role, [child.pid])
    begun = time.monotonic()
    await asyncio.to_thread(_run, port, {"model": "fake/echo"})
    taken.add("ms", title, "first run", 1e3 * (time.monotonic() - begun))
    calling = {"model": "fake/tool-20", "tools": ["add"]}
    await asyncio.gather(*(asyncio.to_thread(_run, port, calling) for _ in range(_RUNS)))
    taken.memory(title, _CHILDREN, children_of(started["tools"].pid))
    _end([*started.values()])
    server.close()


def _is_ready(child: ChildCommand, port: int | None) -> bool:
    if not child.running:
        raise BenchError(f"{child.name} has ended")
    if port is None:
        return " ready." in child.output
    return accepts(port) and answers_ok(f"http://{HOST}:{port}/readyz")


def _run(port: int, agent: Mapping[str, Any]) -> None:
    """Submit a run and wait for its end. Raises BenchError unless it is completed."""
    request = urllib.request.Request(
        f"http://{HOST}:{port}/v1/runs",
        json.dumps({"agent": agent, "input": "hello"}).encode(),
        {"Content-Type": "application/json", "Prefer": "wait=60"},
    )
    with urllib.request.urlopen(request, timeout=90) as answer:
        run = json.load(answer)
    if run["status"] != "completed":
        raise BenchError(f"{run['id']} is {run['status']}: {run.get('error')}")


def _end(children: Sequence[ChildCommand]) -> None:
    give_up_at = time.monotonic() + _ENDS_WITHIN
    for child in children:
        child.terminate()
    for child in children:
        child.reap(give_up_at)
