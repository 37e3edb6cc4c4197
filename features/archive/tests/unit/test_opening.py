"""The archive beside `palaver up` and `palaver serve`: a file in the data directory, unless the
environment says what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.archive.opening import beside
from features.archive.terms import archive_keep
from features.stack.surroundings import bring
from palaver.errors import ConfigurationError


def test_what_was_said_is_kept_in_the_data_directory(tmp_path: Path) -> None:
    environment = {"PALAVER_DATA_DIR": str(tmp_path / "data")}
    lines = bring(environment)
    assert environment["PALAVER_ARCHIVE_URL"] == f"sqlite:///{tmp_path}/data/archive.db"
    assert [line for line in lines if f"{tmp_path}/data/archive.db" in line]


@pytest.mark.parametrize("said", ["PALAVER_ARCHIVE_URL", "PALAVER_ARCHIVE_URL_FILE"])
@pytest.mark.parametrize("value", ["", "/run/secrets/archive"])
def test_the_environment_says_what_there_is(tmp_path: Path, said: str, value: str) -> None:
    assert beside(tmp_path, {said: value}).variables == {}


@pytest.mark.parametrize("name", ["PALAVER_REDIS_URL", "PALAVER_REDIS_URL_FILE"])
def test_the_history_of_another_redis_stays_out_of_it(tmp_path: Path, name: str) -> None:
    shared = beside(tmp_path, {name: "redis://shared/0"})
    assert shared.variables == {}
    assert f"PALAVER_ARCHIVE_URL=sqlite:///{tmp_path}/archive.db" in shared.line
    assert beside(tmp_path, {name: ""}).variables != {}


def test_without_the_extra_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.archive.opening.find_spec", lambda name: None if name == "aiosqlite" else name)
    assert beside(tmp_path, {}).variables == {}


@pytest.mark.parametrize("text", ["0", "3600", "-1", "a week", "inf", "nan"])
def test_a_time_to_keep_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_ARCHIVE_KEEP", text)
    with pytest.raises(ConfigurationError, match="86400 or more"):
        archive_keep()


def test_without_a_time_to_keep_it_is_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALAVER_ARCHIVE_KEEP", raising=False)
    assert archive_keep() is None
    monkeypatch.setenv("PALAVER_ARCHIVE_KEEP", "31536000")
    assert archive_keep() == 31_536_000
