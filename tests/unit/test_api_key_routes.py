"""``/v1/keys``: nobody makes, replaces or sees a key that goes beyond his own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from api.http.audit import AUDIT
from palaver.store.access.api_keys import KeyGrant
from palaver.store.redis import access_keys
from palaver.store.tenants.tenants import Tenant
from palaver.vocabulary.scopes import SCOPES
from tests.unit.api_world import BODY, CONVERSATION_ID, SETTINGS, World, assert_problem, world
from tests.waiting import aeventually

CLOSED = SETTINGS.model_copy(update={"require_keys": True})
ACME, OTHER = Tenant("acme", "acme00"), Tenant("other", "0ther0")
ALL = frozenset(SCOPES)


def _registered(*tenants: Tenant) -> dict[Any, Any]:
    """The registry with these tenants, whose tags are known here."""
    records = {tenant.name: orjson.dumps({"tag": tenant.tag}).decode() for tenant in tenants}
    return records | {f"@{tenant.tag}": tenant.name for tenant in tenants}


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(CLOSED) as made:
        await made.redis.hset(access_keys.TENANTS, mapping=_registered(ACME, OTHER))
        yield made


async def bearer(api: World, **fields: Any) -> dict[str, str]:
    fields = {"name": "boss", "scopes": ALL} | fields
    return {"Authorization": f"Bearer {(await api.store.api_keys.create(KeyGrant(**fields))).key}"}


async def create(api: World, headers: dict[str, str], **body: Any) -> Any:
    return await api.client.post("/v1/keys", json={"name": "new", "scopes": ["runs:read"]} | body, headers=headers)


async def ids(api: World, headers: dict[str, str], query: str = "") -> set[str]:
    answer = await api.client.get(f"/v1/keys{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    return {key["id"] for key in answer.json()["data"]}


async def test_a_key_is_shown_once_and_works(api: World) -> None:
    boss = await bearer(api)
    body = {"name": "shop", "scopes": ["runs:submit", "runs:read"], "agents": ["support"], "expires_in": 3600}
    answer = await create(api, boss, **body)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["location"] == f"/v1/keys/{made['id']}"
    assert answer.headers["cache-control"] == "no-store"
    assert made["key"].startswith(f"plv_{made['id']}_")
    assert made | body == made | {"expires_in": 3600}
    assert (made["created_by"], made["tenant"], made["operator"], made["last_used_at"]) == ("boss", None, False, None)
    assert (await api.client.get("/v1/runs", headers={"Authorization": f"Bearer {made['key']}"})).status_code == 200
    shown = await api.client.get("/v1/keys", headers=boss)
    assert made["key"].split("_")[2] not in shown.text
    (listed,) = (key for key in shown.json()["data"] if key["id"] == made["id"])
    assert {name: listed[name] for name in listed if name != "last_used_at"} == {
        name: made[name] for name in made if name not in ("key", "last_used_at")
    }


async def test_what_is_wrong_with_a_key_is_said(api: World) -> None:
    boss = await bearer(api)
    assert_problem(await create(api, boss, scopes=[]), 422, "validation_error", "/scopes")
    for body, place in (
        ({"scopes": ["runs:everything"]}, "/scopes/0"),
        ({"name": "two words"}, "/name"),
        ({"conversation": "none"}, "/conversation"),
        ({"expires_in": 0}, "/expires_in"),
        ({"agents": ["a"] * 51}, "/agents"),
    ):
        problem = assert_problem(await create(api, boss, **body), 422, "validation_error")
        assert [fault["pointer"] for fault in problem["errors"]] == [place]
    assert_problem(await create(api, boss, tenant="nobody"), 422, "unknown_tenant", "/tenant")


@pytest.mark.parametrize(
    ("own", "wanted", "lacks"),
    [
        ({"scopes": {"admin", "runs:read"}}, {"scopes": ["runs:read", "actions:approve"]}, 'scope="actions:approve"'),
        ({"scopes": {"admin"}}, {"scopes": ["runs:read"]}, 'scope="runs:read"'),
        ({"agents": {"support"}}, {}, "insufficient_scope"),
        ({"agents": {"support"}}, {"agents": ["support", "sales"]}, "insufficient_scope"),
        ({}, {"operator": True}, "insufficient_scope"),
        ({"conversation": CONVERSATION_ID}, {"conversation": CONVERSATION_ID}, "insufficient_scope"),
    ],
)
async def test_nobody_makes_a_key_with_more_rights(
    api: World, own: dict[str, Any], wanted: dict[str, Any], lacks: str
) -> None:
    mine = await bearer(
        api, **{name: value if isinstance(value, str) else frozenset(value) for name, value in own.items()}
    )
    answer = await create(api, mine, **wanted)
    assert_problem(answer, 403, "insufficient_scope")
    assert lacks in answer.headers["www-authenticate"]


async def test_within_ones_own_rights_it_is_made(api: World) -> None:
    mine = await bearer(api, scopes=frozenset({"admin", "runs:read"}), agents=frozenset({"support", "sales"}))
    answer = await create(api, mine, scopes=["runs:read", "admin"], agents=["sales"], conversation=CONVERSATION_ID)
    assert answer.status_code == 201, answer.text


async def test_replacing_a_key_gives_nobody_more_rights(api: World) -> None:
    strong = (await api.store.api_keys.create(KeyGrant("strong", scopes=ALL))).record.id
    weak = (await api.store.api_keys.create(KeyGrant("weak", scopes=frozenset({"admin"})))).record.id
    mine = await bearer(api, scopes=frozenset({"admin"}))
    assert_problem(await api.client.post(f"/v1/keys/{strong}/rotate", headers=mine), 403, "insufficient_scope")
    answer = await api.client.post(f"/v1/keys/{weak}/rotate", json={"overlap": 60}, headers=mine)
    assert answer.status_code == 201, answer.text
    assert answer.json()["name"] == "weak"
    assert answer.json()["id"] != weak


async def test_an_admin_sees_the_keys_of_his_tenant_alone(api: World) -> None:
    made = {
        tenant.name: (await api.store.api_keys.create(KeyGrant("x", tenant.tag, tenant.name, ALL))).record.id
        for tenant in (ACME, OTHER)
    }
    root = (await api.store.api_keys.create(KeyGrant("root", scopes=ALL, operator=True))).record.id
    of_acme = await bearer(api, tenant=ACME.tag, tenant_name=ACME.name)
    of_default = await bearer(api)
    operator = await bearer(api, operator=True)
    assert made["acme"] in await ids(api, of_acme)
    assert (
        await ids(api, of_acme) == await ids(api, of_acme, "?tenant=acme") == await ids(api, operator, "?tenant=acme")
    )
    assert made["other"] in await ids(api, operator, "?tenant=other")
    assert root in await ids(api, operator)
    assert root not in await ids(api, of_default)
    for headers, foreign in ((of_acme, made["other"]), (of_acme, root), (of_default, root), (of_default, made["acme"])):
        refused = [
            await api.client.post(f"/v1/keys/{foreign}/rotate", headers=headers),
            await api.client.delete(f"/v1/keys/{foreign}", headers=headers),
        ]
        unknown = [
            await api.client.post(f"/v1/keys/{'0' * 12}/rotate", headers=headers),
            await api.client.delete(f"/v1/keys/{'0' * 12}", headers=headers),
        ]
        for one, other in zip(refused, unknown, strict=True):
            assert {**assert_problem(one, 404, "key_not_found"), "request_id": 0, "instance": 0} == {
                **assert_problem(other, 404, "key_not_found"), "request_id": 0, "instance": 0
            }  # fmt: skip
    for name in ("other", "nobody"):
        problem = await api.client.get(f"/v1/keys?tenant={name}", headers=of_acme)
        assert_problem(problem, 422, "unknown_tenant", "/tenant")
        assert_problem(await create(api, of_acme, tenant=name), 422, "unknown_tenant", "/tenant")


async def test_a_new_key_is_of_the_tenant_of_whoever_makes_it(api: World) -> None:
    mine = await bearer(api, tenant=ACME.tag, tenant_name=ACME.name)
    made = (await create(api, mine)).json()
    assert made["tenant"] == "acme"
    assert (await api.store.api_keys.get(made["id"])).grant.tenant == ACME.tag
    operator = await bearer(api, operator=True)
    made = (await create(api, operator, tenant="other")).json()
    assert (await api.store.api_keys.get(made["id"])).grant.tenant == OTHER.tag
    made = (await create(api, operator, operator=True, scopes=[])).json()
    assert (made["operator"], made["scopes"]) == (True, list(SCOPES))
    assert_problem(await create(api, operator, operator=True, tenant="acme"), 422, "validation_error", "/operator")


async def test_a_revoked_key_is_gone(api: World) -> None:
    boss = await bearer(api)
    made = (await create(api, boss)).json()
    assert (await api.client.delete(f"/v1/keys/{made['id']}", headers=boss)).status_code == 204
    assert_problem(await api.client.delete(f"/v1/keys/{made['id']}", headers=boss), 404, "key_not_found")

    async def refused() -> bool:
        return (await api.client.get("/v1/runs", headers={"Authorization": f"Bearer {made['key']}"})).status_code == 401

    await aeventually(refused)


async def test_keys_are_in_the_audit_log_without_what_opens_them(api: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT.name)
    boss = await bearer(api)
    made = (await create(api, boss)).json()
    await api.client.post(f"/v1/keys/{made['id']}/rotate", headers=boss)
    await api.client.delete(f"/v1/keys/{made['id']}", headers=boss)
    lines = [each.__dict__["fields"] for each in caplog.records if each.name == AUDIT.name]
    assert [line["operation"] for line in lines] == ["create_key", "rotate_key", "revoke_key"]
    assert (lines[0]["key"], lines[0]["created"], lines[0]["scopes"]) == ("boss", made["id"], ["runs:read"])
    assert lines[1]["api_key"] == lines[2]["api_key"] == made["id"]
    assert made["key"].split("_")[2] not in caplog.text


async def test_keys_of_the_environment_make_keys_of_the_default_tenant() -> None:
    key = "a-key-of-the-environment"
    async with world(SETTINGS.model_copy(update={"api_keys": type(SETTINGS)(api_keys=f"ops={key}").api_keys})) as api:
        listed = {"Authorization": f"Bearer {key}"}
        made = (await create(api, listed, scopes=list(SCOPES))).json()
        assert (made["created_by"], made["tenant"]) == ("ops", None)
        assert_problem(await create(api, listed, operator=True), 403, "insufficient_scope")


async def test_what_is_made_with_a_key_is_its_tenants_and_no_others(api: World) -> None:
    mine = await bearer(api, tenant=ACME.tag, tenant_name=ACME.name)
    others = await bearer(api, tenant=OTHER.tag, tenant_name=OTHER.name)
    operator = await bearer(api, operator=True)
    run = (await api.client.post("/v1/runs", json=BODY, headers=mine)).json()
    assert f"{ACME.tag}_" in run["id"]
    path = run["links"]["self"]
    assert (await api.client.get(path, headers=mine)).status_code == 200
    assert_problem(await api.client.get(path, headers=others), 404, "run_not_found")
    assert (await api.client.get(path, headers=operator)).status_code == 200
    found = [(await api.client.get("/v1/runs", headers=each)).json()["data"] for each in (mine, others, operator)]
    assert [[each["id"] for each in runs] for runs in found] == [[run["id"]], [], [run["id"]]]
    assert_problem(await api.client.get("/v1/queues", headers=mine), 403, "operators_only")
    assert (await api.client.get("/v1/usage?group_by=tenant", headers=mine)).json()["data"] == []


async def test_a_key_is_held_to_no_conversation_of_another_tenant(api: World) -> None:
    operator = await bearer(api, operator=True)
    answer = await create(api, operator, tenant="acme", conversation=CONVERSATION_ID)
    assert_problem(answer, 422, "validation_error", "/conversation")
