"""The listing of ARCHITECTURE.md is that of the folders, in the words of their docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.pages import ROOT, syntax

PAGE = ROOT / "ARCHITECTURE.md"
PACKAGES = ("palaver", "workers", "api", "features")


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
