"""Every page is in order and stands on a shelf, and the index, the site and the list of decisions have all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from docs.check import all_dangling, faults, links
from docs.site import TOP
from tests.feature_cases import of_the_whole
from tests.pages import ROOT, files

PAGES: Final = files("*.md")
DOCS: Final = ROOT / "docs"
INDEX: Final = DOCS / "index.md"
SHELVES: Final = ("tutorial", "how-to", "reference", "why", "adr")
BEFORE_THE_SHELVES: Final = {"index.md", "concepts.md", "coming-from.md", "scale.md"}
DECISIONS: Final = sorted((DOCS / "adr").glob("0*.md"))
LIST: Final = (DOCS / "adr" / "README.md").read_text()


@of_the_whole
def test_each_page_is_in_order() -> None:
    assert {page: found for page in PAGES if (found := [*faults(page)])} == {}


@of_the_whole
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
    inside = [page.relative_to(DOCS) for page in PAGES if page.is_relative_to(DOCS)]
    homeless = [str(page) for page in inside if str(page) not in BEFORE_THE_SHELVES and page.parts[0] not in SHELVES]
    assert not homeless, f"move these pages of docs/ to one of {SHELVES}"


def test_the_site_has_every_page_in_its_menu() -> None:
    menu = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2], re.MULTILINE)
    inside = {str(page.relative_to(DOCS)) for page in PAGES if page.is_relative_to(DOCS) and page not in DECISIONS}
    assert len(menu) == len({*menu})
    assert {*menu} == inside | {f"project/{name}" for name in TOP}


def test_the_list_of_decisions_has_every_number_once() -> None:
    """As a page, as one that was merged into a page, or as one that was never used."""
    rows = re.findall(r"^\| \[(\d{4})\]\(([\w-]+\.md)\) \| .+ \|$", LIST, re.MULTILINE)
    assert [name for _, name in rows] == [page.name for page in DECISIONS]
    merged = re.findall(r"^\| ((?:\d{4}(?:, )?)+) \| (?:\[\d{4}\]\(([\w-]+\.md)\)|never used) \|$", LIST, re.MULTILINE)
    numbers = sorted([number for number, _ in rows] + [number for old, _ in merged for number in old.split(", ")])
    assert numbers == [f"{number:04}" for number in range(1, int(numbers[-1]) + 1)]
    assert {name for _, name in merged if name} <= {page.name for page in DECISIONS}


def test_a_merged_decision_names_the_numbers_that_it_includes() -> None:
    for numbers, name in re.findall(
        r"^\| (.+) \| \[\d{4}\]\(([\w-]+\.md)\) \|$", LIST.partition("\n## ")[2], re.MULTILINE
    ):
        assert f"It includes {numbers}." in " ".join((DOCS / "adr" / name).read_text().split()), name


def test_every_number_of_a_decision_leads_to_a_page() -> None:
    assert all_dangling() == []


def test_each_decision_has_a_status_and_its_title_in_the_list() -> None:
    for page in DECISIONS:
        text = page.read_text()
        assert re.search(r"\n\n\*\*Status\.\*\* Accepted, \d{4}-\d\d-\d\d\.", text), page
        assert re.search(r"\*\*Enforced by\*\*", text), page
        title = text.partition("\n")[0].partition(": ")[2]
        assert f"| [{page.name[:4]}]({page.name}) | {title} |" in LIST


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_its_title(page: Path) -> None:
    assert page.read_text().startswith("# ")


@of_the_whole
def test_every_file_that_a_page_names_exists() -> None:
    by_path: dict[str, list[Path]] = {}
    for page in PAGES:
        for path in re.findall(r"`((?:palaver|workers|api|tests|docs|deploy|bench)/[\w/.*-]+)`", page.read_text()):
            by_path.setdefault(path, []).append(page)
    assert {path: by_path[path] for path in by_path if "NAME" not in path and not [*ROOT.glob(path)]} == {}


def test_the_page_of_compose_calls_nothing_that_it_has_not_installed() -> None:
    page = (ROOT / "docs/how-to/deploy-compose.md").read_text()
    called = {
        line.split()[0]
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for line in block.splitlines()
        if line[:1].strip()
    }
    assert called == {"cd", "install", "umask", "openssl", "echo", "printf", "docker"}
