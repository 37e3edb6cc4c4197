"""A run that waits says why: each reason has its words in the command, and its row in both pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palaver.cli.doing import WAITS
from palaver.vocabulary.lifecycle import WaitReason

DOCS = Path(__file__).parents[2] / "docs"


def test_the_command_has_words_for_each_reason_and_no_others() -> None:
    assert WAITS.keys() == set(WaitReason)


@pytest.mark.parametrize(
    ("page", "head"), [("reference/state.md", "| `reason` |"), ("how-to/find-the-cause.md", "| `waiting` |")]
)
def test_each_page_has_a_row_for_each_reason_and_no_others(page: str, head: str) -> None:
    table = (DOCS / page).read_text().partition(head)[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row) if name != "queued"]
    assert sorted(named) == sorted(WaitReason)
