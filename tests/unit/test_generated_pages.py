"""The tables of pages are those that follow from the code."""

from __future__ import annotations

import pytest

from docs.generate import TABLES
from tests.feature_cases import of_the_whole
from tests.pages import ROOT

PAGES = {
    "errors": "docs/reference/errors.md",
    "events": "docs/reference/events.md",
    "limits": "docs/reference/limits.md",
    "metrics": "docs/reference/metrics.md",
    "policy": "docs/reference/policy.md",
    "retry-rules": "docs/reference/errors.md",
    "routes": "docs/reference/api.md",
    "presets": "docs/how-to/providers.md",
    "one-step": "docs/why/one-step.md",
}


@of_the_whole
@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_tables(name: str) -> None:
    assert TABLES[name]() in (ROOT / PAGES[name]).read_text(), f"{PAGES[name]}: python -m docs.generate {name}"
