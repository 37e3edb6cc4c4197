"""Settings are read from variables of the environment."""

from __future__ import annotations

import pytest
from pydantic import Field, Json, ValidationError

from palaver.config.environment import FromEnvironment


class Garden(FromEnvironment, prefix="GARDEN_"):
    trees: int = Field(default=3, gt=0)
    names: Json[frozenset[str]] = Field(default=frozenset(), validate_default=False)


class Park(Garden):
    benches: int = 0


@pytest.mark.parametrize("variable", ["GARDEN_TREES", "garden_trees", "Garden_Trees"])
def test_a_field_is_read_from_the_variable_of_its_name(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "5")
    monkeypatch.setenv("TREES", "7")
    assert (Garden().trees, Park().trees, Garden(trees=6).trees) == (5, 5, 6)


def test_one_that_is_empty_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GARDEN_TREES", "")
    assert Garden().trees == 3


def test_what_does_not_fit_is_refused_without_being_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GARDEN_TREES", "secret")
    with pytest.raises(ValidationError, match="trees") as refused:
        Garden()
    assert "secret" not in str(refused.value)


def test_json_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Garden().names == frozenset()
    monkeypatch.setenv("GARDEN_NAMES", '["elm"]')
    assert Garden().names == {"elm"}


def test_what_is_no_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="flowers"):
        Garden(flowers=1)  # type: ignore[call-arg]
