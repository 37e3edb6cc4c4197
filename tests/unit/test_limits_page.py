"""The page of limits says what the code does."""

from __future__ import annotations

import re

import pytest

from palaver.config.settings import Settings
from palaver.feature import brought
from palaver.vocabulary import limits
from palaver.vocabulary.limits import LIMITS, Limit, all_limits, count_exceeded, exceeded
from tests.pages import ROOT

CORE = ("palaver", "workers", "api")


@pytest.mark.parametrize(
    "limit", [each for each in all_limits().values() if each.setting.startswith("PALAVER_")], ids=lambda each: each.name
)
def test_a_setting_has_the_limit_as_its_default(limit: Limit) -> None:
    field = Settings.model_fields[limit.setting.removeprefix("PALAVER_").lower()]
    assert field.default == limit.value


def test_what_goes_beyond_is_counted_under_a_name_that_is_there() -> None:
    before = exceeded["body"]
    count_exceeded("body")
    assert exceeded["body"] == before + 1
    with pytest.raises(KeyError):
        count_exceeded("no such limit")


def test_no_two_limits_have_one_name() -> None:
    of_features = [each for groups in brought("limits") for group in groups.values() for each in group]
    assert len(limits._ALL) + len(of_features) == len(all_limits())


def test_the_core_asks_for_its_own() -> None:
    asked = re.compile(r"(?:limit_of|count_exceeded|AtMost)\(\s*\"(\w+)\"|items=\"(\w+)\"|\bLimit\.([A-Z_]+)")
    files = [path for folder in CORE for kind in ("py", "lua") for path in (ROOT / folder).rglob(f"*.{kind}")]
    found = {name.lower() for path in files for match in asked.findall(path.read_text()) for name in match if name}
    assert len(found) > 100
    assert found <= {*LIMITS}
