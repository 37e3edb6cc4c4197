"""The how-to pages show what happens: their commands are typed, and the answers are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.pages import ROOT, blocks, files
from tests.process.cluster import Cluster
from tests.process.reading import Reader

pytestmark = [pytest.mark.process, pytest.mark.long]

OWN_TEST: Final = {"failures.md", "find-the-cause.md"}
"""Compared by test_failures_page.py and test_find_the_cause.py."""
PAGES: Final = [
    page
    for page in files("docs/how-to/*.md")
    if page.name not in OWN_TEST and any(kind == "console" for kind, _ in blocks(page))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_the_page_says_what_happens(page: Path, cluster: Cluster) -> None:
    reader = Reader(cluster)
    for kind, content in blocks(page):
        if kind == "console":
            reader.follow(content)
