"""``/v1/tenants``: operators see and change the caps of all, everybody else sees his own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from api.http.audit import AUDIT
from palaver.store.access.api_keys import KeyGrant
from palaver.store.redis import access_keys
from palaver.vocabulary.scopes import SCOPES
from tests.unit.api_world import BODY, SETTINGS, World, assert_problem, world

ACME, OTHER = "acme00", "0ther0"
NO_CAPS: dict[str, Any] = dict.fromkeys(
    ("max_in_flight", "max_queued", "requests_per_minute", "tokens_per_minute", "usd_per_day", "usd_per_month")
)
ALL = frozenset(SCOPES)


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(SETTINGS.model_copy(update={"require_keys": True})) as made:
        for name, tag in (("acme", ACME), ("other", OTHER)):
            await made.redis.hset(access_keys.TENANTS, mapping={name: orjson.dumps({"tag": tag}), f"@{tag}": name})
        yield made


async def bearer(api: World, **fields: Any) -> dict[str, str]:
    grant = KeyGrant(**{"name": "boss", "scopes": ALL} | fields)
    return {"Authorization": f"Bearer {(await api.store.api_keys.create(grant)).key}"}


async def test_an_operator_changes_caps_of_every_tenant(api: World, caplog: pytest.LogCaptureFixture) -> None:
    root = await bearer(api, operator=True)
    listed = (await api.client.get("/v1/tenants", headers=root)).json()["data"]
    assert [(each["name"], each["tag"], each["weight"]) for each in listed] == [
        ("default", None, 1), ("acme", ACME, 1), ("other", OTHER, 1),
    ]  # fmt: skip
    with caplog.at_level(logging.INFO, logger=AUDIT.name):
        body = {"weight": 3, "max_queued": 7, "usd_per_day": 2.5, "usd_per_month": 30}
        changed = await api.client.patch("/v1/tenants/acme", json=body, headers=root)
    expected = {**NO_CAPS, "name": "acme", "tag": ACME, **body}
    assert (changed.status_code, changed.json()) == (200, expected)
    (line,) = caplog.messages
    assert "change_tenant" in line
    assert "tenant=acme" in line
    assert "usd_per_day=2.5" in line
    assert (await api.client.get("/v1/tenants/acme", headers=root)).json() == expected
    again = await api.client.patch("/v1/tenants/acme", json={"max_queued": None, "weight": None}, headers=root)
    assert again.json() == expected | {"max_queued": None, "weight": 1}
    of_default = await api.client.patch("/v1/tenants/default", json={"max_in_flight": 4}, headers=root)
    assert of_default.json() == {**NO_CAPS, "name": "default", "tag": None, "weight": 1, "max_in_flight": 4}
    listed = (await api.client.get("/v1/tenants", headers=root)).json()["data"]
    assert listed == [of_default.json(), again.json(), {**NO_CAPS, "name": "other", "tag": OTHER, "weight": 1}]
    assert_problem(await api.client.get("/v1/tenants/nobody", headers=root), 404, "tenant_not_found")
    assert_problem(await api.client.patch("/v1/tenants/a b", json={"weight": 2}, headers=root), 404, "tenant_not_found")


@pytest.mark.parametrize(
    ("tag", "own", "other"), [(ACME, "acme", "other"), (ACME, "acme", "default"), ("", "default", "acme")]
)
async def test_others_see_their_own_caps_and_change_none(api: World, tag: str, own: str, other: str) -> None:
    boss, root = await bearer(api, tenant=tag), await bearer(api, operator=True)
    for name in (own, other):
        assert (await api.client.patch(f"/v1/tenants/{name}", json={"weight": 2}, headers=root)).status_code == 200
    shown = (await api.client.get("/v1/tenants", headers=boss)).json()["data"]
    assert [(each["name"], each["weight"]) for each in shown] == [(own, 2)]
    assert [(await api.client.get(f"/v1/tenants/{own}", headers=boss)).json()] == shown
    mine = await api.client.patch(f"/v1/tenants/{own}", json={"weight": 1000}, headers=boss)
    assert_problem(mine, 403, "operators_only")
    for name in (other, "nobody"):
        assert_problem(await api.client.get(f"/v1/tenants/{name}", headers=boss), 404, "tenant_not_found")
        answer = await api.client.patch(f"/v1/tenants/{name}", json={"weight": 1000}, headers=boss)
        assert_problem(answer, 404, "tenant_not_found")
    assert (await api.client.get(f"/v1/tenants/{other}", headers=root)).json()["weight"] == 2


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"weight": 0}, "/weight"),
        ({"weight": 1001}, "/weight"),
        ({"weight": 1.5}, "/weight"),
        ({"max_in_flight": 0}, "/max_in_flight"),
        ({"max_queued": 1_000_001}, "/max_queued"),
        ({"requests_per_minute": "10"}, "/requests_per_minute"),
        ({"tokens_per_minute": True}, "/tokens_per_minute"),
        ({"usd_per_day": 0}, "/usd_per_day"),
        ({"usd_per_day": -1}, "/usd_per_day"),
        ({"usd_per_month": 1_000_001}, "/usd_per_month"),
        ({"usd_per_year": 1}, "/usd_per_year"),
    ],
)
async def test_what_is_no_cap_is_refused(api: World, body: dict[str, Any], place: str) -> None:
    root = await bearer(api, operator=True)
    assert_problem(await api.client.patch("/v1/tenants/acme", json=body, headers=root), 422, "validation_error", place)
    assert (await api.client.get("/v1/tenants/acme", headers=root)).json()["weight"] == 1


async def test_a_full_queue_of_a_tenant_is_429_with_retry_after(api: World) -> None:
    await api.client.patch("/v1/tenants/acme", json={"max_queued": 1}, headers=await bearer(api, operator=True))
    boss = await bearer(api, tenant=ACME)
    assert (await api.client.post("/v1/runs", json=BODY, headers=boss)).status_code == 202
    full = await api.client.post("/v1/runs", json=BODY, headers=boss)
    assert_problem(full, 429, "tenant_queue_full")
    assert full.headers["retry-after"] == "5"
    assert "As many runs of the tenant have not begun" in full.json()["detail"]
    assert (await api.client.post("/v1/runs", json=BODY, headers=await bearer(api, tenant=OTHER))).status_code == 202
