"""Checks the pages: ``python -m docs.check``, which ``make check`` runs.

No line of prose is longer than 120 characters, a cell of a table holds a phrase, and each relative link leads to a file
and to a heading that are there. Addresses elsewhere are not asked. A decision is short and names tests that exist, and
each number of a decision, in any file, is that of a page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs.wrap import WIDTH

ROOT: Final = Path(__file__).parents[1]
CELL: Final = 120
"""Characters that a reader sees in a cell."""
DECISIONS: Final = ROOT / "docs" / "adr"
DECISION_WORDS: Final = 400
"""Words of a decision, its title and the names of its tests included."""
_GENERATED: Final = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
_FENCED: Final = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"\]\(([^()\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CELL: Final = re.compile(r"(?<!\\)\|")
_SENTENCES: Final = re.compile(r"[.!?] +[A-Z`[]")
_NAMES: Final = re.compile(r"(?:`[^`]*`|\*\w+\*|::|[\s,;·…?]|and|or)*")
"""A cell that lists names, such as tests or codes, may be as long as the list is."""
_FILE: Final = re.compile(r"`((?:tests|features|palaver|workers|api|bench|deploy|docs)/[\w/.-]+)`")
_NUMBER: Final = re.compile(r"\bADRs?[ \n#*]+(\d{4}(?:(?:,? (?:and |or )?)\d{4})*)")


def pages() -> list[Path]:
    """Every page of the repository, whether it has been added to git yet or not."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return sorted(ROOT / name for name in set(names) if (ROOT / name).exists())


def links(page: Path) -> list[tuple[Path, str]]:
    """The file and the anchor that each relative link of a page names."""
    prose = _CODE.sub("", _FENCED.sub("", page.read_text()))
    found = [link for link in _LINK.findall(prose) if not re.match(r"[a-z]+:", link)]
    parts = [link.partition("#") for link in found]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in parts]


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`: the headings, spelled as GitHub spells them."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", _LINK.sub("]", heading).lower()).replace(" ", "-") for heading in headings}


def faults(page: Path) -> Iterator[str]:
    """What is wrong with a page, in sentences."""
    yield from dead_links(page)
    yield from wide_lines(page.read_text())
    if page.parent == DECISIONS and page.name != "README.md":
        yield from decision_faults(page.read_text())


def dead_links(page: Path) -> Iterator[str]:
    """Links to a file or a heading that is not there."""
    for target, anchor in links(page):
        if not target.exists():
            yield f"links to {target}, which is not there"
        elif anchor and anchor not in anchors(target):
            yield f"links to #{anchor}, a heading that {target.name} has not"


def wide_lines(text: str) -> Iterator[str]:
    """Prose beyond the width, and cells that hold more than a phrase."""
    # What is left out stays as empty lines, so that the numbers are those of the file.
    prose = _GENERATED.sub(_blank, _FENCED.sub(_blank, text))
    for number, line in enumerate(prose.splitlines(), 1):
        if not line.startswith("|"):
            if len(line) > WIDTH:
                yield f"line {number} has {len(line)} characters: python -m docs.wrap"
            continue
        for cell in _CELL.split(line)[1:-1]:
            seen = _LINK.sub("]", cell).strip()
            if _NAMES.fullmatch(seen):
                continue
            if len(seen) > CELL:
                yield f"line {number} has a cell of {len(seen)} characters: put sentences below the table"
            elif _SENTENCES.search(_CODE.sub("`", seen)):
                yield f"line {number} has a cell of several sentences: put them below the table"


def decision_faults(text: str) -> Iterator[str]:
    """A decision that is too long, and files that it names and that do not exist."""
    if (words := len(text.split())) > DECISION_WORDS:
        yield f"has {words} words, of at most {DECISION_WORDS}: put mechanics into docstrings"
    for name in _FILE.findall(text):
        if not (ROOT / name).exists():
            yield f"names {name}, which does not exist"


def dangling(name: str, text: str, numbers: frozenset[str]) -> Iterator[str]:
    """Decisions that ``text``, of the file ``name``, refers to and that have no page of their own."""
    for found in _NUMBER.finditer(text):
        for number in re.findall(r"\d{4}", found[1]):
            if number not in numbers:
                line = text.count("\n", 0, found.start()) + 1
                yield f"{name}:{line}: ADR {number} has no page: docs/adr/README.md says where it is now"


def all_dangling() -> list[str]:
    """References to decisions without a page, in every text of the repository."""
    numbers = frozenset(page.name[:4] for page in DECISIONS.glob("[0-9]*.md"))
    listed = ["git", "grep", "-lIE", "--untracked", r"\bADRs?\b"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [fault for name in names for fault in dangling(name, (ROOT / name).read_text(), numbers)]


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def main() -> None:
    """Print each fault; the exit code is 1 if there is one."""
    found = [f"{page.relative_to(ROOT)}: {fault}" for page in pages() for fault in faults(page)] + all_dangling()
    print("\n".join(found) or f"{len(pages())} pages: links, lines and tables are in order")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
