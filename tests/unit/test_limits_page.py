"""The page of limits says what the code does."""

from __future__ import annotations

import pytest

from palaver.config.settings import Settings
from palaver.vocabulary import limits
from palaver.vocabulary.limits import LIMITS, Limit, count_exceeded, exceeded


@pytest.mark.parametrize(
    "limit", [each for each in LIMITS.values() if each.setting.startswith("PALAVER_")], ids=lambda each: each.name
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
    assert len(limits._ALL) == len(LIMITS)
