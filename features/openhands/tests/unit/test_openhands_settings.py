"""A dialect declares what its operator can set; it is read when the API starts, unless it is switched off."""

from __future__ import annotations

import pytest

from api.app.installed import dialects_of
from features.openhands.dialect import OpenHandsSettings
from palaver.config.settings import Settings
from palaver.config.variables import unread
from palaver.errors import ConfigurationError
from tests.unit.api_world import world

SETTINGS = Settings(redis_url="redis://fake/0")


@pytest.mark.parametrize(("given", "patience"), [(None, 50), ("", 50), ("7.5", 7.5)])
async def test_it_is_there_for_the_dialect(monkeypatch: pytest.MonkeyPatch, given: str | None, patience: float) -> None:
    if given is not None:
        monkeypatch.setenv("PALAVER_OPENHANDS_PATIENCE", given)
    async with world(SETTINGS) as api:
        assert api.app.state.backend.setting(OpenHandsSettings).patience == patience


async def test_what_does_not_fit_is_refused_at_the_start_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_OPENHANDS_PATIENCE", "0")
    with pytest.raises(ConfigurationError, match=r"^PALAVER_OPENHANDS_PATIENCE: Input should be greater than 0$"):
        async with world(SETTINGS):
            pass


async def test_of_one_that_is_switched_off_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_OPENHANDS_PATIENCE", "0")
    async with world(SETTINGS, dialects=dialects_of(("native",))) as api:
        with pytest.raises(LookupError):
            api.app.state.backend.setting(OpenHandsSettings)


def test_no_process_complains_of_variables_of_an_installed_dialect() -> None:
    assert unread({"PALAVER_OPENHANDS_PATIENCE": "5"}) == []
    assert len(unread({"PALAVER_OPENHAND_PATIENCE": "5"})) == 1
