"""Every link of every page resolves, every page stands on a shelf, and docs/index.md leads to all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.pages import ROOT, files

PAGES: Final = files("*.md")
INDEX: Final = ROOT / "docs" / "index.md"
SHELVES: Final = ("tutorial", "how-to", "reference", "why", "adr")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def links(page: Path) -> list[tuple[Path, str]]:
    """The file and the anchor that each relative link of a page names."""
    found = [link for link in _LINK.findall(_CODE.sub("", page.read_text())) if not re.match(r"[a-z]+:", link)]
    parts = [link.partition("#") for link in found]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in parts]


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`: the headings, spelled as GitHub spells them."""
    headings = _HEADING.findall(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path) -> None:
    dead = [
        f"{target}#{anchor}"
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert not dead, f"{page.relative_to(ROOT)} links to what is not there"


def test_the_index_leads_to_every_page() -> None:
    reached, ahead = {INDEX}, [INDEX]
    while ahead:
        for target, _ in links(ahead.pop()):
            if target.suffix == ".md" and target not in reached:
                reached.add(target)
                ahead.append(target)
    alone = [str(page.relative_to(ROOT)) for page in PAGES if page not in reached]
    assert not alone, "link these pages from docs/index.md (an ADR from docs/adr/README.md)"


def test_every_page_stands_on_a_shelf() -> None:
    inside = [page.relative_to(ROOT / "docs") for page in PAGES if page.is_relative_to(ROOT / "docs")]
    homeless = [str(page) for page in inside if page != Path("index.md") and page.parts[0] not in SHELVES]
    assert not homeless, f"move these pages of docs/ to one of {SHELVES}"


def test_the_numbers_of_the_readme_are_those_of_the_benchmark() -> None:
    table = (ROOT / "README.md").read_text().partition("## Beside plain Celery")[2].partition("\n## ")[0]
    cells = [cell for row in table.splitlines() if row.startswith("|") for cell in row.split("|")[2:4]]
    numbers = {number for cell in cells for number in re.findall(r"[\d.]+", cell)}
    measured = set(re.findall(r"[\d.]+", (ROOT / "docs" / "why" / "bench.md").read_text()))
    assert len(numbers) >= 8
    assert numbers <= measured


def test_the_files_to_read_first_stay_short() -> None:
    said = re.findall(r"^\| `([\w/.]+)` \| (\d+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert len(said) == 5
    assert [path for path, lines in said if len((ROOT / path).read_text().splitlines()) > int(lines)] == []


def test_the_way_of_a_run_id_has_twelve_hops_that_exist() -> None:
    hops = re.findall(r"^\| (\d+) \| `(\w+)` in `([\w/.]+)`", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _, _ in hops] == list(range(1, 13))
    for _, name, path in hops:
        assert re.search(rf"(?:def|function) {name}\(", (ROOT / path).read_text()), f"{path} has no {name}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "adr"], ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """But for the decisions, which tell of their time."""
    named = set(re.findall(r"`((?:palaver|workers|api|tests|docs|deploy|bench)/[\w/.*-]+)`", page.read_text()))
    assert [path for path in sorted(named) if "NAME" not in path and not [*ROOT.glob(path)]] == []


def test_the_page_of_compose_calls_nothing_that_it_has_not_installed() -> None:
    page = (ROOT / "docs/how-to/deploy-compose.md").read_text()
    called = {
        line.split()[0]
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for line in block.splitlines()
        if line[:1].strip()
    }
    assert called == {"cd", "install", "umask", "openssl", "echo", "printf", "docker"}
