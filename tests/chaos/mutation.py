"""A mutant of the product: a copy of the tree in which one promise is broken, and what the checkers say of it, or the
test that is named."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.pages import ROOT
from tests.waiting import PATIENCE

TREE: Final = ("palaver", "workers", "api", "features", "deploy", "tests", "conftest.py", "pyproject.toml")
TAKES_AT_MOST: Final = 2 * PATIENCE
"""Seconds for a scenario or a test, on a machine that has other things to do as well. A test that a mutant lets wait in
vain says so after `PATIENCE`."""
_NOTICED: Final = re.compile(r"AssertionError|DID NOT RAISE|^E +(?:palaver|workers|api|features)\.", re.MULTILINE)
"""How pytest says that something is not as it should be, or was refused."""
_PROBE: Final = """
import json, api.app, palaver.store.scripting.scripts, workers.steps.step
print(json.dumps([module.__file__ for module in (api.app, palaver.store.scripting.scripts, workers.steps.step)]))
"""


@dataclass(frozen=True)
class Change:
    """``old`` is in ``file`` once, and becomes ``new``."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A change that breaks a promise; ``caught_by`` are the checkers that fail in the scenario."""

    name: str
    scenario: str
    caught_by: frozenset[str]
    change: Change


@dataclass(frozen=True)
class TestedMutant:
    """A change that breaks a promise, and the test that fails: of the store's contract, or without processes."""

    __test__ = False

    name: str
    test: str
    change: Change


def tested(name: str, test: str, file: str, old: str, new: str) -> TestedMutant:
    """A mutant whose test fails if ``old`` becomes ``new`` in a file."""
    return TestedMutant(name, test, Change(file, old, new))


_M = TypeVar("_M", Mutant, TestedMutant)


def by_name(*mutants: _M) -> dict[str, _M]:
    """Mutants under their names. Raises AssertionError if two have the same: one would not be played."""
    named = {mutant.name: mutant for mutant in mutants}
    assert len(named) == len(mutants)
    return named


@contextmanager
def tree(*changes: Change) -> Iterator[Path]:
    """A copy of the tree and of what is compiled of it, changed.

    Raises AssertionError if there is nothing, or too much, to change: the product has moved on and the change must
    follow.
    """
    with tempfile.TemporaryDirectory(prefix="palaver-mutant-") as folder:
        root = Path(folder) / "tree"
        root.mkdir()
        for name in TREE:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name)
            else:
                shutil.copy(ROOT / name, root / name)
        for change in changes:
            text = (root / change.file).read_text()
            assert text.count(change.old) == 1, f"{change.file} has {change.old!r} not exactly once"
            (root / change.file).write_text(text.replace(change.old, change.new))
        yield root


def play(mutant: Mutant | None, scenario: str) -> list[dict[str, Any]]:
    """What the checkers find when the scenario is played with the mutant, or with the product as it is."""
    with tree(*([mutant.change] if mutant else [])) as root:
        places = json.loads(run_in(root, "-c", _PROBE))
        assert all(Path(place).is_relative_to(root) for place in places), f"the mutant is not what runs: {places}"
        found: list[dict[str, Any]] = json.loads(run_in(root, "-m", "tests.chaos.scenarios", scenario, "../stack"))
        return found


def run_in(root: Path, *arguments: str) -> str:
    """The last line that Python prints, started in this tree and with nothing before it on its path."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True, timeout=TAKES_AT_MOST
    )
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout.splitlines()[-1]


def unnoticed(mutant: TestedMutant) -> str:
    """What pytest says if no test notices the mutant; empty if one does."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=long"]
    if "tests/contract/" in mutant.test:
        options += ["-m", "chaos or not chaos"]
    with tree(mutant.change) as root:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", mutant.test, *options],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=TAKES_AT_MOST,
        )
    # 1: a test failed. Nothing else is an answer, nor is code that does not run any more.
    noticed = done.returncode == 1 and _NOTICED.search(done.stdout)
    return "" if noticed else done.stdout[-3000:] + done.stderr[-1000:]
