"""A sample of a matrix shows each value; of a long list it has the first, the last, and some between them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.tiers import sample

MATRIX = """
import pytest

@pytest.mark.parametrize("one", "abc")
@pytest.mark.parametrize(("two", "three"), [(1, 2), (3, 4)])
def test_matrix(one, two, three): ...

@pytest.mark.parametrize("one", "abc")
def test_list(one): ...

@pytest.mark.parametrize("one", ["a", pytest.param("b", marks=pytest.mark.chaos)])
@pytest.mark.parametrize("two", "xy")
def test_other_marks_stay(one, two): ...
"""
CONFTEST = """
from tests.tiers import mark_long

def pytest_collection_modifyitems(items):
    mark_long(items)
"""


@pytest.mark.process
def test_a_matrix_is_sampled_so_that_each_value_is_there(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_made.py").write_text(MATRIX)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n  chaos\n")
    options = ["-c", "pytest.ini", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not long and not chaos"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_made.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line] == [
        "test_matrix[1-2-a]", "test_matrix[1-2-c]", "test_matrix[3-4-b]",
        "test_list[a]", "test_list[b]", "test_list[c]",
        "test_other_marks_stay[x-a]", "test_other_marks_stay[y-a]",
    ]  # fmt: skip


def test_a_list_is_sampled_from_its_first_to_its_last_case() -> None:
    cases = sample([1, 2, (3, 4), pytest.param(5, id="five"), 6], 3)
    assert [cases[0], cases[2], cases[4]] == [1, (3, 4), 6]
    assert [each.values for each in (cases[1], cases[3])] == [(2,), (5,)]
    assert [mark.name for each in (cases[1], cases[3]) for mark in each.marks] == ["long", "long"]
    assert cases[3].id == "five"
