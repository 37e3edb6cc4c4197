"""A tenant is exported and erased by who may, each with one call that can be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from features.offboarding import erasures, exports
from palaver.store.access.api_keys import KeyGrant
from palaver.store.tenants.tenants import Tenant
from palaver.vocabulary.scopes import SCOPES
from tests.unit.api_world import AGENT, BODY, SETTINGS, World, assert_problem, world

CLOSED = SETTINGS.model_copy(update={"require_keys": True})


class Offices:
    """An API with a tenant, `acme`, its neighbour, and an operator."""

    def __init__(self, api: World) -> None:
        self.api = api
        self.tenants: dict[str, Tenant] = {}

    async def key(self, tenant: str = "", **fields: Any) -> dict[str, str]:
        """The header of a new key."""
        tag = self.tenants[tenant].tag if tenant else ""
        grant = {"name": "key", "scopes": frozenset(SCOPES), "tenant": tag, "tenant_name": tenant or None} | fields
        return {"Authorization": f"Bearer {(await self.api.store.api_keys.create(KeyGrant(**grant))).key}"}


@pytest.fixture
async def offices(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Offices]:
    monkeypatch.setattr(erasures, "QUIET", 0.0)
    async with world(CLOSED) as api:
        made = Offices(api)
        for name in ("acme", "globex"):
            made.tenants[name] = await api.store.tenants.create(name)
        yield made


async def furnish(offices: Offices, headers: dict[str, str], words: str) -> None:
    """Let the bearer have something."""
    client = offices.api.client
    for number in range(3):
        body = {**BODY, "input": f"{words} {number}", "secrets": {"TOKEN": f"secret-of-{words}"}}
        assert (await client.post("/v1/runs", json=body, headers=headers)).status_code == 202
    for _ in range(2):
        agent = {**AGENT, "instructions": f"{words} {_}"}
        assert (await client.put("/v1/agents/support", json=agent, headers=headers)).is_success
    planned = {"every": 3600, "run": {"agent": AGENT, "input": words}}
    assert (await client.put("/v1/schedules/nightly", json=planned, headers=headers)).is_success
    asked = {"agents": [AGENT], "items": [{"input": words}], "name": words}
    assert (await client.post("/v1/batches", json=asked, headers=headers)).is_success
    webhook = {"url": "https://example.org/hook", "description": words}
    assert (await client.post("/v1/webhooks", json=webhook, headers=headers)).status_code == 201


def lines_of(text: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in text.splitlines()]


@pytest.mark.slow
async def test_an_operator_erases_a_tenant_and_gets_the_receipt(offices: Offices) -> None:
    client, root = offices.api.client, await offices.key(operator=True, name="root")
    acme, globex = await offices.key("acme"), await offices.key("globex")
    for headers in (acme, globex):
        await furnish(offices, headers, "words")
    assert (await client.get("/v1/runs", headers=acme)).status_code == 200
    answer = await client.post("/v1/tenants/acme/erase", headers=root)
    assert answer.status_code == 200, answer.text
    receipt = answer.json()
    assert receipt["done"]
    assert receipt["by"] == "root"
    assert receipt["erased"]["runs"] == receipt["erased"]["conversations"] == receipt["erased"]["secrets"] == 3
    assert (await client.post("/v1/tenants/acme/erase", headers=root)).json() == receipt
    assert len((await client.get("/v1/runs", headers=globex)).json()["data"]) == 3
    acts = (await client.get("/v1/audit", headers=root)).json()["data"]
    assert [act["operation"] for act in acts].count("tenant_erased") == 1
    assert [act["facts"].get("tenant") for act in acts if act["operation"] == "erase_tenant"] == ["acme"] * 2


async def test_who_is_no_operator_erases_nothing(offices: Offices) -> None:
    client, acme, default = offices.api.client, await offices.key("acme"), await offices.key()
    assert_problem(await client.post("/v1/tenants/acme/erase", headers=acme), 403, "operators_only")
    assert_problem(await client.post("/v1/tenants/default/erase", headers=default), 403, "operators_only")
    for headers in (acme, default):
        foreign, unknown = [
            await client.post(f"/v1/tenants/{name}/erase", headers=headers) for name in ("globex", "nobody")
        ]
        assert_problem(foreign, 404, "tenant_not_found")
        assert_problem(unknown, 404, "tenant_not_found")
    root = await offices.key(operator=True)
    assert_problem(await client.post("/v1/tenants/default/erase", headers=root), 409, "default_tenant")
    assert_problem(await client.post("/v1/tenants/nobody/erase", headers=root), 404, "tenant_not_found")
    assert [tenant.erasing for tenant in await offices.api.store.tenants.list()] == [False] * 3


async def test_what_a_worker_holds_is_waited_for(offices: Offices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.offboarding.leaving._TIME", 0.05)
    client, root, acme = offices.api.client, await offices.key(operator=True), await offices.key("acme")
    run = (await client.post("/v1/runs", json=BODY, headers=acme)).json()
    client.headers.update(root)
    await offices.api.claim(run)
    answer = (await client.post("/v1/tenants/acme/erase", headers=root)).json()
    assert not answer["done"]
    assert answer["ended_at"] is None
    assert answer["unfinished_runs"] == 1
    refused = await client.post("/v1/runs", json={**BODY, "conversation_id": run["conversation_id"]}, headers=root)
    assert_problem(refused, 409, "tenant_erased")


async def exported(offices: Offices, name: str, headers: dict[str, str], **query: str) -> list[dict[str, Any]]:
    answer = await offices.api.client.get(f"/v1/tenants/{name}/export", headers=headers, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/x-ndjson")
    lines = lines_of(answer.text)
    for line in lines:
        # The use of a key is written some time after it.
        line.get("key", {}).pop("last_used_at", None)
    return lines


@pytest.mark.slow
async def test_an_export_has_all_and_counts_it(offices: Offices) -> None:
    acme, root = await offices.key("acme"), await offices.key(operator=True)
    await furnish(offices, acme, "words")
    await furnish(offices, await offices.key("globex"), "canary")
    lines = await exported(offices, "acme", acme)
    counts = Counter(line["kind"] for line in lines)
    end = lines.pop()
    assert (end["kind"], end["tenant"]) == ("end", "acme")
    assert end["counts"] == {kind: number for kind, number in sorted(counts.items()) if kind != "end"}
    kinds = ("conversation", "run", "agent", "key", "schedule", "batch", "webhook")
    assert [counts[kind] for kind in kinds] == [3, 3, 2, 1, 1, 1, 1]
    assert counts["entry"] >= 6
    assert counts["act"] >= 5
    assert [line["agent"]["version"] for line in lines if line["kind"] == "agent"] == [1, 2]
    text = orjson.dumps(lines).decode()
    for secret in ("canary", "secret-of-words", "digest", acme["Authorization"].split("_")[2]):
        assert secret not in text
    assert all(f"words {number}" in text for number in range(3))
    assert [line["kind"] for line in await exported(offices, "acme", root)][-1] == "end"


@pytest.mark.slow
async def test_it_is_known_who_exported(offices: Offices, caplog: pytest.LogCaptureFixture) -> None:
    acme = await offices.key("acme", name="boss")
    with caplog.at_level("INFO", "palaver.audit"):
        await exported(offices, "acme", acme)
    assert [record.message.split()[:3] for record in caplog.records if record.name == "palaver.audit"] == [
        ["boss", "export_tenant", "method=GET"]
    ]
    acts = (await offices.api.client.get("/v1/audit", headers=acme)).json()["data"]
    assert [(act["operation"], act["key"]) for act in acts] == [("export_tenant", "boss")]


@pytest.mark.slow
async def test_an_export_goes_on_behind_any_line(offices: Offices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_PAGE", 2)
    acme, root = await offices.key("acme"), await offices.key(operator=True)
    await furnish(offices, acme, "words")
    whole = await exported(offices, "acme", root)
    assert len(whole) > 15
    for number, line in enumerate(whole[:-1], 1):
        assert await exported(offices, "acme", root, cursor=line["cursor"]) == whole[number:]


@pytest.mark.slow
async def test_the_default_tenant_is_exported_as_any_other_one(offices: Offices) -> None:
    default = await offices.key()
    await furnish(offices, default, "words")
    await furnish(offices, await offices.key("acme"), "canary")
    lines = await exported(offices, "default", default)
    assert lines[-1]["counts"]["run"] == 3
    assert "canary" not in orjson.dumps(lines).decode()


async def test_who_may_not_read_all_exports_nothing(offices: Offices) -> None:
    client, path = offices.api.client, "/v1/tenants/acme/export"
    for scopes in ({"admin"}, {"admin", "runs:read"}, {"admin", "usage:read"}, set(SCOPES) - {"admin"}):
        headers = await offices.key("acme", scopes=frozenset(scopes))
        assert_problem(await client.get(path, headers=headers), 403, "insufficient_scope")
    held = await offices.key("acme", agents=frozenset({"support"}))
    assert_problem(await client.get(path, headers=held), 403, "insufficient_scope")
    for headers in (await offices.key("globex"), await offices.key()):
        assert_problem(await client.get(path, headers=headers), 404, "tenant_not_found")
        assert_problem(await client.get("/v1/tenants/nobody/export", headers=headers), 404, "tenant_not_found")


@pytest.mark.parametrize("cursor", ["x", "WzksIiIse31d", "WzAsIngiLHt9XQ==", "WzMsIngiLHt9XQ==", "e30=", "ä", "W10="])
async def test_a_cursor_that_no_line_had_is_refused(offices: Offices, cursor: str) -> None:
    headers = await offices.key("acme")
    answer = await offices.api.client.get(f"/v1/tenants/acme/export?cursor={cursor}", headers=headers)
    assert_problem(answer, 400, "invalid_cursor", "?cursor")
