"""What the checker of pages finds, how prose is wrapped, and what the site makes of links and lists."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from docs.check import DECISION_WORDS, dangling, dead_links, decision_faults, wide_lines
from docs.site import indented, on_page_markdown, slug
from docs.wrap import wrapped

WORDS = " ".join(["word"] * 30)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (WORDS, "line 1 has 149 characters"),
        (f"| a | {WORDS} |", "line 1 has a cell of 149 characters"),
        ("| a | One thing. Another thing. |", "line 1 has a cell of several sentences"),
        (f"```\n{WORDS}\n```\n\n{WORDS}", "line 5 has 149 characters"),
    ],
)
def test_what_is_too_wide_is_found(text: str, found: str) -> None:
    assert [fault.startswith(found) for fault in wide_lines(text)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        f"```sh\n{WORDS}\n```",
        "| a | " + ", ".join(f"`tests/unit/test_{name}.py::test_that`" for name in "abcdef") + " |",
        f"| a | [one]({'x' * 200}.md) of `a. B` |",
        f"<!-- generated: by hand -->\n| {WORDS} |\n<!-- end -->",
    ],
)
def test_code_names_links_and_what_is_generated_may_be_wide(text: str) -> None:
    assert [*wide_lines(text)] == []


def test_links_lead_to_files_and_headings(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A `code` heading, and [a link](page.md)\n")
    page.write_text("[a](other.md#a-code-heading-and-a-link) [b](gone.md) [c](other.md#gone) `[d](gone.md)`\n")
    assert [*dead_links(page)] == [
        f"links to {tmp_path / 'gone.md'}, which is not there",
        "links to #gone, a heading that other.md has not",
    ]


def test_prose_is_wrapped_and_nothing_else() -> None:
    code = f"   ```sh\n   {WORDS}\n   ```\n"
    text = f"# {WORDS}\n\n{WORDS}\n\n1. {WORDS}\n   - {WORDS}\n\n{code}\n| {WORDS} |\n\n    {WORDS}\n"
    shown = wrapped(text)
    assert shown.split() == text.split()
    assert wrapped(shown) == shown
    wide = [line.strip() for line in shown.splitlines() if len(line) > 120]
    assert wide == [f"# {WORDS}", WORDS, f"| {WORDS} |", WORDS]
    assert f"\n1. {WORDS[:114]}\n   word" in shown
    assert f"\n   - {WORDS[:114]}\n     word" in shown


def test_no_line_begins_with_what_would_be_a_list_and_code_stays_together() -> None:
    number = f"{WORDS[:117]} 7. {WORDS}"
    assert all(not line.startswith("7.") for line in wrapped(number).splitlines())
    code = f"{WORDS[:110]} `palaver run hello` {WORDS}"
    assert "`palaver run hello`" in wrapped(code)


def page_at(source: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=source))


@pytest.mark.parametrize(
    ("source", "link", "shown"),
    [
        ("how-to/tools.md", "[a](../reference/api.md#b)", "[a](../reference/api.md#b)"),
        ("how-to/tools.md", "[a](../../SECURITY.md#b)", "[a](../project/SECURITY.md#b)"),
        ("project/README.md", "[a](docs/why/bench.md)", "[a](../why/bench.md)"),
        ("project/README.md", "[a](SECURITY.md)", "[a](SECURITY.md)"),
        ("project/README.md", "[a](#b) [c](https://d.example)", "[a](#b) [c](https://d.example)"),
        ("reference/api.md", "[program.py](../../tests/clients/program.py)", "program.py"),
        ("reference/api.md", "`[a](../../SECURITY.md)`", "`[a](../../SECURITY.md)`"),
    ],
)
def test_links_lead_on_in_the_site(source: str, link: str, shown: str) -> None:
    assert on_page_markdown(link, page_at(source)) == f"{shown}\n"


def test_decisions_come_last_in_the_search() -> None:
    for source, rank in (("adr/0012-approvals.md", {"boost": 0.01}), ("how-to/cancel.md", None)):
        page = page_at(source)
        page.meta = {}
        on_page_markdown("Text", page)
        assert page.meta.get("search") == rank


def test_lists_are_indented_as_the_site_reads_them() -> None:
    assert indented("Text\n- one\n  more\n- two\n") == "Text\n\n- one\n    more\n- two\n"
    assert indented("1. one\n\n   ```sh\n   a\n     b\n   ```\n\nText\n") == (
        "1. one\n\n    ```sh\n    a\n      b\n    ```\n\nText\n"
    )


def test_anchors_are_those_of_the_repository() -> None:
    assert slug("What `fake` is, and isn't", "-") == "what-fake-is-and-isnt"


def test_a_decision_that_is_long_or_names_a_test_that_is_gone_is_found() -> None:
    fits = " ".join(["word"] * (DECISION_WORDS - 1)) + " `tests/unit/test_docs_check.py`"
    assert [*decision_faults(fits)] == []
    assert [*decision_faults(f"{fits} more `tests/unit/test_gone.py`")] == [
        "has 402 words, of at most 400: put mechanics into docstrings",
        "names tests/unit/test_gone.py, which does not exist",
    ]


def test_a_number_of_a_decision_without_a_page_is_found() -> None:
    text = "as ADR {} and\nADRs {}, {} say (ADR\n# {})".format("0002", "0004", "0007", "0056")
    found = [fault.removeprefix("a.py:2: ADR ")[:16] for fault in dangling("a.py", text, frozenset({"0002", "0004"}))]
    assert found == ["0007 has no page", "0056 has no page"]
