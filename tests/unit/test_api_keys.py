"""API keys with names: who asked is known by the name of the key, and a key is never quoted."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from palaver.errors import ConfigurationError
from palaver.settings import Settings, settings
from tests.unit.api_world import World, world

SECRET = "sk-CANARY-0123456789"


def _keys(text: str) -> list[tuple[str | None, str]]:
    made = Settings(api_keys=text)  # type: ignore[arg-type]
    return [(key.name, key.secret.get_secret_value()) for key in made.api_keys]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", []),
        ("one", [(None, "one")]),
        ("one, two,", [(None, "one"), (None, "two")]),
        ("ops=one,web.app-2=two,three", [("ops", "one"), ("web.app-2", "two"), (None, "three")]),
        ("ops=one,ops=two", [("ops", "one"), ("ops", "two")]),
        ("ops=a=b==", [("ops", "a=b==")]),
        ("QUJDREVGR0g=,QUJDREVGRw==", [(None, "QUJDREVGR0g="), (None, "QUJDREVGRw==")]),
        ("one,one", [(None, "one")]),
    ],
)
def test_a_key_may_have_a_name(text: str, keys: list[tuple[str | None, str]]) -> None:
    assert _keys(text) == keys


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" , ", "holds no key"),
        (f"the ops={SECRET}", "entry 1 must be a key or name=key"),
        (f"good=fine,{'a' * 33}={SECRET}", "entry 2 must be a key or name=key"),
        (f"={SECRET}", "entry 1 must be a key or name=key"),
        (f"{SECRET}!=x", "entry 1 must be a key or name=key"),
        (f"ops={SECRET},web={SECRET}", "entry 2 gives a second name to a key"),
        (f"ops={SECRET},{SECRET}", "entry 2 gives a second name to a key"),
    ],
)
def test_what_is_no_key_stops_the_process_and_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    settings.cache_clear()
    monkeypatch.setenv("PALAVER_API_KEYS", text)
    with pytest.raises(ConfigurationError, match=says) as stopped:
        settings()
    assert "PALAVER_API_KEYS" in str(stopped.value)
    with pytest.raises(ValidationError) as raw:
        Settings()
    assert SECRET not in f"{stopped.value} {raw.value} {raw.value!r}"
    settings.cache_clear()


def test_settings_do_not_show_keys() -> None:
    assert SECRET not in repr(Settings(api_keys=f"ops={SECRET},x{SECRET}"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "name"), [("one", "ops"), ("two", "ops"), ("three", None)])
async def test_a_cancel_says_whose_key_asked(key: str, name: str | None) -> None:
    guarded = Settings(redis_url="redis://fake/0", api_keys="ops=one,ops=two,three")  # type: ignore[arg-type]
    async with world(guarded) as api:
        api.client.headers["Authorization"] = f"Bearer {key}"
        assert (await _cancelled(api))["cancel"]["by"] == name
        api.client.headers["Authorization"] = f"Bearer ops={key}"
        assert (await api.client.get("/v1/runs")).status_code == 401


async def test_without_keys_nobody_has_a_name() -> None:
    async with world() as api:
        assert (await _cancelled(api))["cancel"]["by"] is None


async def _cancelled(api: World) -> dict[str, dict[str, object]]:
    run = await api.submit()
    answer = await api.client.post(f"{run['links']['self']}/cancel")
    assert answer.status_code == 200, answer.text
    found: dict[str, dict[str, object]] = answer.json()
    return found
