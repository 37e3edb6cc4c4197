"""Imports of tests: what a file of them stands on, whatever helpers are between."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.pages import ROOT, syntax

STANDS_ON: Final = frozenset({"fake_provider", "stack"})
"""Features that the tests stand on: the servers that they start are those of the stack, and the model is the fake
provider with a judge. Without one there is no test that needs it, and so none with processes."""


def features_of(files: Iterable[Path]) -> dict[str, set[str]]:
    """Return the features that these files import, by themselves or by helpers, each with the modules that do."""
    found: dict[str, set[str]] = {}
    seen, ahead = set[Path](), [*files]
    while ahead:
        file = ahead.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _imported(file):
            first, *rest = name.split(".")
            if first == "features" and rest:
                found.setdefault(rest[0], set()).add(str(file.relative_to(ROOT)))
            elif first in ("bench", "deploy", "docs", "tests"):
                place = ROOT.joinpath(first, *rest)
                ahead += [each for each in (place.with_suffix(".py"), place / "__init__.py") if each.exists()]
    return found


@cache
def _imported(file: Path) -> frozenset[str]:
    return frozenset(_names(ast.walk(syntax(file))))


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module
                yield from (f"{module}.{each.name}" for each in names)
