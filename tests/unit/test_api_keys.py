"""API keys with names: who asked is known by the name of the key, and a key is never quoted."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from palaver.config.settings import Settings, settings
from palaver.errors import ConfigurationError, ErrorClass
from tests.unit.api_world import BODY, World, world

SECRET = "sk-CANARY-0123456789"
ONE, TWO, THREE = "one-key-of-many-1", "two-key-of-many-2", "three-key-of-many"
BASE64 = "QUJDREVGQUJDREVGQUJDREVGR0"


def _keys(text: str) -> list[tuple[str | None, str]]:
    made = Settings(api_keys=text)
    return [(key.name, key.secret.get_secret_value()) for key in made.api_keys]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", []),
        (ONE, [(None, ONE)]),
        (f"{ONE}, {TWO},", [(None, ONE), (None, TWO)]),
        (f"ops={ONE},web.app-2={TWO},{THREE}", [("ops", ONE), ("web.app-2", TWO), (None, THREE)]),
        (f"ops={ONE},ops={TWO}", [("ops", ONE), ("ops", TWO)]),
        (f"ops={ONE}=b==", [("ops", f"{ONE}=b==")]),
        (f"{BASE64}g=,{BASE64}w==", [(None, f"{BASE64}g="), (None, f"{BASE64}w==")]),
        (f"{ONE},{ONE}", [(None, ONE)]),
    ],
)
def test_a_key_may_have_a_name(text: str, keys: list[tuple[str | None, str]]) -> None:
    assert _keys(text) == keys


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" , ", "holds no key"),
        (f"the ops={SECRET}", "entry 1 must be a key or name=key"),
        (f"good={ONE},{'a' * 33}={SECRET}", "entry 2 must be a key or name=key"),
        (f"={SECRET}", "entry 1 must be a key or name=key"),
        (f"{SECRET}!=x", "entry 1 must be a key or name=key"),
        (f"{ONE},{SECRET[:15]}", "entry 2 is a key of fewer than 16 characters"),
        (f"ops={SECRET[:15]}", "entry 1 is a key of fewer than 16 characters"),
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
    assert SECRET[:15] not in f"{stopped.value} {raw.value} {raw.value!r}"
    settings.cache_clear()


def test_settings_do_not_show_keys() -> None:
    assert SECRET not in repr(Settings(api_keys=f"ops={SECRET},x{SECRET}"))


@pytest.mark.parametrize(("key", "name"), [(ONE, "ops"), (TWO, "ops"), (THREE, None)])
async def test_a_cancel_says_whose_key_asked(key: str, name: str | None) -> None:
    guarded = Settings(redis_url="redis://fake/0", api_keys=f"ops={ONE},ops={TWO},{THREE}")
    async with world(guarded) as api:
        api.client.headers["Authorization"] = f"Bearer {key}"
        assert (await _cancelled(api))["cancel"]["by"] == name
        run = await api.submit()
        assert run["submitted_by"] == name
        assert (await api.claim(run)).submitted_by == name
        api.client.headers["Authorization"] = f"Bearer ops={key}"
        assert (await api.client.get("/v1/runs")).status_code == 401


async def test_runs_are_found_by_whose_key_submitted_them() -> None:
    guarded = Settings(redis_url="redis://fake/0", api_keys=f"ops={ONE},op={TWO},{THREE}")
    async with world(guarded) as api:
        runs = {}
        for key in (ONE, TWO, THREE):
            api.client.headers["Authorization"] = f"Bearer {key}"
            runs[key] = (await api.submit())["id"]
        for name, found in (("ops", [runs[ONE]]), ("op", [runs[TWO]]), ("nobody", [])):
            listed = (await api.client.get("/v1/runs", params={"submitted_by": name})).json()
            assert [run["id"] for run in listed["data"]] == found
        body = {"action": "cancel", "filter": {"submitted_by": "op"}}
        done = (await api.client.post("/v1/runs/actions", json=body)).json()
        assert done["run_ids"] == [runs[TWO]]


async def test_who_retries_a_run_has_submitted_the_new_one() -> None:
    guarded = Settings(redis_url="redis://fake/0", api_keys=f"ops={ONE},web={THREE}")
    async with world(guarded) as api:
        api.client.headers["Authorization"] = f"Bearer {ONE}"
        for path, body in (("{}/retry", None), ("/v1/runs/actions", {"action": "retry", "filter": {"tag": "again"}})):
            run = await api.submit(tags=["again"])
            await api.fail(run, ErrorClass.PROVIDER_ERROR)
            await api.client.post(
                path.format(run["links"]["self"]), json=body, headers={"Authorization": f"Bearer {THREE}"}
            )
            newest = (await api.client.get("/v1/runs?limit=1")).json()["data"][0]
            assert (newest["retried_from"], newest["submitted_by"]) == (run["id"], "web")
            await api.client.post(f"{newest['links']['self']}/cancel")


async def test_an_idempotency_key_is_known_to_keys_of_the_same_name() -> None:
    guarded = Settings(redis_url="redis://fake/0", api_keys=f"ops={ONE},ops={TWO},web={THREE}")
    async with world(guarded) as api:

        async def sent(key: str, path: str, body: dict[str, Any]) -> tuple[int, str, bool]:
            headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "mine"}
            answer = await api.client.post(path, json=body, headers=headers)
            return answer.status_code, answer.json().get("id", ""), "idempotency-replayed" in answer.headers

        status, mine, _ = await sent(ONE, "/v1/runs", BODY)
        assert status == 202
        assert await sent(TWO, "/v1/runs", BODY) == (202, mine, True)
        status, theirs, replayed = await sent(THREE, "/v1/runs", {**BODY, "input": "another"})
        assert (status, replayed) == (202, False)
        assert theirs != mine
        pause = {"items": [{"type": "pause"}]}
        assert await sent(ONE, f"/v1/runs/{mine}/input", pause) == (422, "", False)
        resume = {"items": [{"type": "pause"}, {"type": "resume"}]}
        assert (await sent(THREE, f"/v1/runs/{mine}/input", resume))[0] == 422


async def test_without_keys_nobody_has_a_name() -> None:
    async with world() as api:
        assert (await _cancelled(api))["cancel"]["by"] is None


async def _cancelled(api: World) -> dict[str, dict[str, object]]:
    run = await api.submit()
    answer = await api.client.post(f"{run['links']['self']}/cancel")
    assert answer.status_code == 200, answer.text
    found: dict[str, dict[str, object]] = answer.json()
    return found
