"""`workers` and `api` import their own modules relatively: the wheel has both below `palaver`, under other names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.pages import ROOT, syntax


def _imported(tree: ast.AST) -> Iterator[str]:
    """The modules that are named from the top."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["workers", "api"])
def test_no_module_names_itself_by_where_the_checkout_has_it(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))
    named = {(path.name, name) for path in modules for name in _imported(syntax(path))}
    assert modules
    assert not {each for each in named if each[1].partition(".")[0] in ("workers", "api")}
