"""The page of limits says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaver.config.settings import Settings
from palaver.vocabulary.limits import LIMITS, Limit, beyond, exceeded, tables

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"


def test_the_page_has_the_tables() -> None:
    page = PAGE.read_text()
    assert page[page.index("## ") :].startswith(tables()), (
        "python -m palaver.vocabulary.limits prints what docs/reference/limits.md must have"
    )


@pytest.mark.parametrize(
    "limit", [each for each in LIMITS.values() if each.setting.startswith("PALAVER_")], ids=lambda each: each.name
)
def test_a_setting_has_the_limit_as_its_default(limit: Limit) -> None:
    field = Settings.model_fields[limit.setting.removeprefix("PALAVER_").lower()]
    assert field.default == limit.most


def test_what_goes_beyond_is_counted_under_a_name_that_is_there() -> None:
    before = exceeded["body"]
    beyond("body")
    assert exceeded["body"] == before + 1
    with pytest.raises(KeyError):
        beyond("no such limit")


def test_no_two_limits_have_one_name() -> None:
    assert len(tables().splitlines()) - tables().count("## ") * 5 + 1 == len(LIMITS)
