"""``GET /v1/caller``: what a page knows about the key that it was given."""

from __future__ import annotations

from palaver.config.settings import Settings
from palaver.vocabulary.scopes import SCOPES
from tests.unit.api_world import SECRET_KEY, SETTINGS, assert_problem, world

KEYED = Settings(redis_url="redis://fake/0", api_keys="ops=key-of-the-operators", secret_key=SECRET_KEY)
OPS = {"Authorization": "Bearer key-of-the-operators"}


async def test_everything_is_open_without_keys() -> None:
    async with world(SETTINGS) as api:
        told = (await api.client.get("/v1/caller")).json()
    everything = {"scopes": list(SCOPES), "agents": None, "conversation": None, "keyed": False}
    assert told == {"name": None, "tenant": "default", "operator": False, **everything}


async def test_a_key_says_what_it_opens() -> None:
    async with world(KEYED) as api:
        assert_problem(await api.client.get("/v1/caller"), 401, "unauthenticated")
        told = (await api.client.get("/v1/caller", headers=OPS)).json()
        assert (told["name"], told["scopes"], told["keyed"]) == ("ops", list(SCOPES), True)
        wanted = {"name": "few", "scopes": ["usage:read"], "agents": ["support"]}
        made = (await api.client.post("/v1/keys", json=wanted, headers=OPS)).json()
        few = (await api.client.get("/v1/caller", headers={"Authorization": f"Bearer {made['key']}"})).json()
    assert (few["name"], few["tenant"], few["operator"]) == ("few", "default", False)
    assert (few["scopes"], few["agents"], few["conversation"]) == (["usage:read"], ["support"], None)


async def test_a_token_says_its_conversation() -> None:
    async with world(KEYED) as api:
        body = {"agent": {"model": "fake/echo"}, "input": "hello"}
        run = (await api.client.post("/v1/runs", json=body, headers=OPS)).json()
        asked = {"run": run["id"], "scopes": ["runs:read", "actions:approve"]}
        token = (await api.client.post("/v1/tokens", json=asked, headers=OPS)).json()["token"]
        told = (await api.client.get("/v1/caller", headers={"Authorization": f"Bearer {token}"})).json()
    assert (told["conversation"], told["scopes"]) == (run["conversation_id"], ["runs:read", "actions:approve"])
