"""Who did what with a key of the store is kept, in the store, for the tenant; and read at ``/v1/audit``."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError

from palaver.config.settings import Settings
from palaver.store.access.api_keys import KeyGrant
from palaver.store.access.audit import AuditLog
from palaver.vocabulary.scopes import SCOPES
from tests.unit.api_world import BODY, SETTINGS, World, assert_problem, call, world

LISTED = "a-key-of-the-environment"
CLOSED = SETTINGS.model_copy(update={"api_keys": Settings(api_keys=f"ops={LISTED}").api_keys})
OPS = {"Authorization": f"Bearer {LISTED}"}


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(CLOSED) as made:
        yield made


async def bearer(api: World, **fields: Any) -> tuple[str, dict[str, str]]:
    """The id of a new key, and its header."""
    made = await api.store.api_keys.create(KeyGrant(**{"name": "ann", "scopes": frozenset(SCOPES)} | fields))
    return made.record.id, {"Authorization": f"Bearer {made.key}"}


async def acts(api: World, query: str = "", headers: dict[str, str] = OPS) -> list[dict[str, Any]]:
    answer = await api.client.get(f"/v1/audit{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def test_each_act_says_who_what_when_and_from_where(api: World) -> None:
    key_id, ann = await bearer(api)
    run = (await api.client.post("/v1/runs", json=BODY, headers=ann)).json()
    api.client.headers.update(OPS)
    await api.ask(run, call("call_1", "approval"))
    item = {"type": "approval", "action_id": "all", "decision": "approve"}
    path = run["links"]["self"]
    assert (await api.client.post(f"{path}/input", json={"items": [item]}, headers=ann)).status_code == 202
    assert (await api.client.post(f"{path}/cancel", headers=ann)).status_code in (200, 202)
    submit, decision, cancel = await acts(api)
    assert (submit["operation"], submit["facts"]["created"], submit["status"]) == ("submit", run["id"], 202)
    assert (decision["operation"], decision["facts"]) == (
        "send_input", {"run": run["id"], "items": ["approval approve"]},
    )  # fmt: skip
    assert (cancel["operation"], cancel["facts"]["run"]) == ("cancel", run["id"])
    for act in (submit, decision, cancel):
        assert (act["key"], act["key_id"], act["operator"], act["client"]) == ("ann", key_id, False, "127.0.0.1")
        assert act["request"].startswith("req_")


async def test_what_changed_nothing_is_no_act(api: World) -> None:
    _, ann = await bearer(api)
    _, reader = await bearer(api, scopes=frozenset({"runs:read"}))
    await api.client.get("/v1/runs", headers=ann)
    await api.client.post("/v1/runs", json={}, headers=ann)
    await api.client.post("/v1/runs", json=BODY, headers=reader)
    assert await acts(api) == []


async def test_with_a_key_of_the_environment_nothing_is_kept(api: World) -> None:
    assert (await api.client.post("/v1/runs", json=BODY, headers=OPS)).status_code == 202
    assert await acts(api) == []


async def test_whatever_an_operator_does_is_kept(api: World) -> None:
    _, root = await bearer(api, name="root", operator=True)
    run = (await api.client.post("/v1/runs", json=BODY, headers=OPS)).json()
    assert (await api.client.get(run["links"]["self"], headers=root)).status_code == 200
    (act,) = await acts(api)
    assert (act["operation"], act["operator"], act["key"], act["facts"]) == (
        "read_run", True, "root", {"run": run["id"]},
    )  # fmt: skip


async def test_what_an_operator_looks_at_again_and_again_is_kept_once(api: World) -> None:
    """A page that asks every few seconds would push out the acts; another key, tenant or thing is another look."""
    _, root = await bearer(api, name="root", operator=True)
    _, other = await bearer(api, name="other", operator=True)
    run = (await api.client.post("/v1/runs", json=BODY, headers=OPS)).json()["links"]["self"]
    looks = [(run, root), (run, root), (run, other), ("/v1/runs", root), ("/v1/runs?limit=5", root)]
    for path, headers in [*looks, *looks]:
        assert (await api.client.get(path, headers=headers)).status_code == 200
    for _ in range(2):
        assert (await api.client.post(f"{run}/cancel", headers=root)).status_code < 300
    found = [(act["operation"], act["key"]) for act in await acts(api)]
    looked_at = [("read_run", "root"), ("read_run", "other"), ("list_runs", "root")]
    assert found == [*looked_at, ("cancel", "root"), ("cancel", "root")]


async def test_a_token_acts_under_the_name_of_its_key(api: World) -> None:
    run = (await api.client.post("/v1/runs", json=BODY, headers=OPS)).json()
    body = {"run": run["id"], "scopes": ["runs:act"]}
    token = (await api.client.post("/v1/tokens", json=body, headers=OPS)).json()["token"]
    await api.client.post(f"{run['links']['self']}/cancel", headers={"Authorization": f"Bearer {token}"})
    (act,) = await acts(api)
    assert (act["operation"], act["key"], act["key_id"]) == ("cancel", "ops", None)


async def test_pages_follow_each_other(api: World) -> None:
    _, ann = await bearer(api)
    runs = [(await api.client.post("/v1/runs", json=BODY, headers=ann)).json()["id"] for _ in range(3)]
    first = (await api.client.get("/v1/audit?limit=2", headers=OPS)).json()
    assert first["has_more"]
    rest = (await api.client.get(f"/v1/audit?limit=2&after={first['next_after']}", headers=OPS)).json()
    assert not rest["has_more"]
    assert [act["facts"]["created"] for act in first["data"] + rest["data"]] == runs
    assert await acts(api, f"?after={rest['next_after']}") == []
    assert_problem(await api.client.get("/v1/audit?after=x", headers=OPS), 400, "invalid_cursor")
    assert_problem(await api.client.get("/v1/audit?tenant=other", headers=OPS), 422, "unknown_tenant", "/tenant")


async def test_tenants_do_not_see_the_acts_of_each_other(api: World) -> None:
    _, mine = await bearer(api, tenant="acme00", tenant_name="acme")
    _, other = await bearer(api)
    made = (await api.client.post("/v1/keys", json={"name": "x", "scopes": ["admin"]}, headers=mine)).json()
    (act,) = await acts(api, headers=mine)
    assert act["facts"]["created"] == made["id"]
    assert await acts(api, headers=other) == []


async def test_what_cannot_be_kept_is_done_and_logged_all_the_same(
    api: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise ConnectionError("lost")

    _, ann = await bearer(api)
    monkeypatch.setattr(AuditLog, "add", lost)
    caplog.set_level(logging.ERROR, "palaver.api")
    assert (await api.client.post("/v1/runs", json=BODY, headers=ann)).status_code == 202
    assert "an act is in the log and not in the store: ConnectionError" in caplog.text


async def test_nothing_is_kept_where_a_setting_says_so() -> None:
    async with world(CLOSED.model_copy(update={"audit_retention": 0.0})) as api:
        _, ann = await bearer(api)
        assert (await api.client.post("/v1/runs", json=BODY, headers=ann)).status_code == 202
        assert await acts(api) == []
