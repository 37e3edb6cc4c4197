"""What docs/why/referees.md says of a suite: the tests hold it to that, and it to the tests."""

from __future__ import annotations

import re
from typing import Final

from tests.pages import ROOT

_PAGE: Final = ROOT / "docs" / "why" / "referees.md"
_NAME: Final = re.compile(r"`([^`]+)`")


def passed(suite: str) -> str:
    """The cell ``passed`` of a suite in the first table, such as ``8 of 37``."""
    rows = (line.split(" | ") for line in _PAGE.read_text().splitlines() if line.startswith("| "))
    return next(cells[2] for cells in rows if cells[0] == f"| {suite}")


def stated(heading: str) -> dict[str, str]:
    """The cases in the table below a heading, each with the sentence why it does not pass."""
    part = _PAGE.read_text().partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    found: dict[str, str] = {}
    for line in part.splitlines():
        if line.startswith("| `"):
            cases, _, sentence = line.removeprefix("| ").removesuffix(" |").partition(" | ")
            found |= dict.fromkeys(_NAME.findall(cases), sentence)
    return found
