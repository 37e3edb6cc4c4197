"""Promises are worth what their tests are: those that the pages name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.feature_cases import of_the_whole
from tests.pages import ROOT

_TEST = re.compile(r"`((?:tests|features/\w+/tests)/[\w/.*]+)(?:::(\w+))?`")


@of_the_whole
@pytest.mark.parametrize(
    "page", ["docs/why/guarantees.md", "ARCHITECTURE.md", "SECURITY.md", "docs/how-to/security.md"]
)
def test_what_the_page_names_exists(page: str) -> None:
    named = _TEST.findall((ROOT / page).read_text())
    assert len(named) >= 10
    missing = [f"{path}::{test}" for path, test in named if not there(path, test)]
    assert not missing


def there(path: str, test: str) -> bool:
    """Whether some file of this path, which may be a pattern, has that test."""
    return any(f"def {test}(" in file.read_text() if test else file.exists() for file in sorted(Path(ROOT).glob(path)))


_HEADS = ("|---", "| what", "| kind", "| class")
_PAGES = {"docs/why/guarantees.md": "# Guarantees", "SECURITY.md": "## What holds"}
"""Where the tables of promises begin."""


def _promises(page: str) -> list[str]:
    rows = (ROOT / page).read_text().partition(_PAGES[page])[2].splitlines()
    return [row for row in rows if row.startswith("|") and not row.startswith(_HEADS)]


def test_every_promise_names_a_test() -> None:
    promises = [row for page in _PAGES for row in _promises(page)]
    assert [promise for promise in promises if not _TEST.search(promise.rpartition(" | ")[2])] == []


@of_the_whole
@pytest.mark.process
def test_make_test_holds_every_promise() -> None:
    """Of the tests that a promise names one at least is in `make test`, or it looks at what those leave behind."""
    tests = {promise: _TEST.findall(promise.rpartition(" | ")[2]) for promise in _promises("docs/why/guarantees.md")}
    files = {str(file) for named in tests.values() for path, _ in named for file in ROOT.glob(path)}
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not long and not chaos"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *sorted(files)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    parts = [line.partition("[")[0].split("::") for line in done.stdout.splitlines() if "::" in line]
    collected = {(each[0], each[-1]) for each in parts}
    assert [
        promise for promise, named in tests.items() if not any(_held(path, test, collected) for path, test in named)
    ] == []


def _held(path: str, test: str, collected: set[tuple[str, str]]) -> bool:
    looks_behind = path.endswith(".py") and not Path(path).name.startswith("test_")
    pattern = path if path.endswith(".py") else f"{path}/*"
    return looks_behind or any(fnmatch(file, pattern) and test in ("", name) for file, name in collected)
