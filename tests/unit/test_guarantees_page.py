"""Promises are worth what their tests are: those that the pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import ROOT

_TEST = re.compile(r"`(tests/[\w/.*]+)(?:::(\w+))?`")


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
_PROMISES = [
    row
    for page, first in _PAGES.items()
    for row in (ROOT / page).read_text().partition(first)[2].splitlines()
    if row.startswith("|") and not row.startswith(_HEADS)
]


@pytest.mark.parametrize("promise", _PROMISES)
def test_every_promise_names_a_test(promise: str) -> None:
    assert _TEST.search(promise.rpartition(" | ")[2]), promise
