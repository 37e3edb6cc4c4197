"""The listing of ARCHITECTURE.md is that of the folders, in the words of their docstrings."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.feature_cases import of_the_whole
from tests.pages import ROOT, syntax

PAGE = ROOT / "ARCHITECTURE.md"
PACKAGES = ("palaver", "workers", "api")


def _rooms(folder: Path, indent: str = "") -> Iterator[str]:
    docstring = ast.get_docstring(syntax(folder / "__init__.py")) or ""
    name = f"{indent}{folder.name}/"
    yield f"{name:<22}{docstring.partition(chr(10))[0]}"
    if len(indent) < 4:
        for each in sorted(folder.glob("*/__init__.py")):
            yield from _rooms(each.parent, indent + "  ")


def test_the_listing_is_that_of_the_folders() -> None:
    listing = "\n\n".join("\n".join(_rooms(ROOT / package)) for package in PACKAGES)
    assert listing in PAGE.read_text(), f"ARCHITECTURE.md, 'Where things are', must have:\n{listing}"


def _features() -> Iterator[str]:
    """Rows of a table: the name that the README has, what it is for as the package says, and its first promise."""
    for folder in sorted(path.parent for path in (ROOT / "features").glob("*/README.md")):
        text = (folder / "README.md").read_text()
        title, promise = text.partition("\n")[0].removeprefix("# "), " ".join(text.partition("\n- ")[2].split())
        about = (ast.get_docstring(syntax(folder / "__init__.py")) or "").partition("\n")[0]
        cells = (about.partition(": ")[2] or about, promise.partition(" (`")[0])
        told = (re.sub(r" \(ADR \d+\)|\.$|``", "", cell) for cell in cells)
        yield f"| [{title}](features/{folder.name}/README.md) | {' | '.join(told)} |"


@of_the_whole
def test_the_table_has_each_feature_and_its_first_promise() -> None:
    head = "| feature | what for | its first promise |\n|---|---|---|\n"
    table = head + "".join(f"{row}\n" for row in _features())
    text = PAGE.read_text()
    if os.environ.get("REWRITE_PAGES"):
        text = re.sub(rf"{re.escape(head)}(?:\|.*\n)*", lambda _: table, text)
        PAGE.write_text(text)
    assert table in text, "ARCHITECTURE.md, 'Features': REWRITE_PAGES=1 writes it"
