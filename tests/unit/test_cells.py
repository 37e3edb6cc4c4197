"""Values as cells of a table that a spreadsheet opens."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from palaver.schemas.cells import as_cell
from tests.pages import syntax

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff201"])
def test_no_text_is_a_formula(text: str) -> None:
    assert as_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    ("value", "cell"),
    [("a = 1", "a = 1"), ("", ""), (-1.5, -1.5), (None, None), (True, True), ({"pass": True}, '{"pass":true}')],
)
def test_other_values_are_as_they_are(value: Any, cell: Any) -> None:
    assert as_cell(value) == cell


@pytest.mark.slow
def test_whatever_writes_a_table_of_users_texts_guards_its_cells() -> None:
    written = [
        path
        for package in ("api", "features", "palaver", "workers")
        for path in (ROOT / package).rglob("*.py")
        if any(
            isinstance(node, ast.Attribute)
            and node.attr in ("writer", "DictWriter")
            and getattr(node.value, "id", "") == "csv"
            for node in ast.walk(syntax(path))
        )
    ]
    assert len(written) >= 3
    assert [path for path in written if "as_cell(" not in path.read_text()] == []
