"""Who changed something is in the log: the key's name, the operation and what it was done to."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.app.installed import dialects_of
from api.http.audit import AUDIT, READING
from palaver.config.settings import Settings
from tests.unit.api_world import BODY, SETTINGS, World, world

KEY = "a-key-of-a-test-0123456789"


@pytest.fixture
async def api() -> AsyncIterator[World]:
    keys = Settings(api_keys=f"ann={KEY}").api_keys
    async with world(SETTINGS.model_copy(update={"api_keys": keys})) as made:
        made.client.headers["Authorization"] = f"Bearer {KEY}"
        yield made


@pytest.fixture
def fields(caplog: pytest.LogCaptureFixture) -> Any:
    """The fields of the audit lines so far, which are forgotten then."""
    caplog.set_level(logging.INFO, AUDIT.name)

    def found() -> list[dict[str, Any]]:
        lines = [each.__dict__["fields"] for each in caplog.records if each.name == AUDIT.name]
        caplog.clear()
        return lines

    return found


async def test_a_cancel_a_delete_and_a_patch_say_who_did_them(api: World, fields: Any) -> None:
    run = await api.submit()
    assert fields() == [], "a run says itself who submitted it"
    assert (await api.client.post(f"/v1/runs/{run['id']}/cancel", json={"mode": "graceful"})).status_code == 200
    (line,) = fields()
    wanted = {"operation": "cancel", "method": "POST", "key": "ann", "run": run["id"], "mode": "graceful"}
    assert wanted.items() <= line.items()

    conversation = run["conversation_id"]
    patch = {"title": "not for the log", "metadata": {"a": "b"}}
    assert (await api.client.patch(f"/v1/conversations/{conversation}", json=patch)).status_code == 200
    (line,) = fields()
    assert (line["operation"], line["conversation"]) == ("change_conversation", conversation)
    assert line["changed"] == ["metadata", "title"]
    assert "not for the log" not in str(line)

    assert (await api.client.delete(f"/v1/runs/{run['id']}")).status_code == 204
    (line,) = fields()
    assert {"operation": "delete_run", "run": run["id"], "key": "ann", "status": 204}.items() <= line.items()


async def test_what_goes_into_a_run_says_of_what_kind_it_is(api: World, fields: Any) -> None:
    run = await api.submit()
    items = [{"type": "message", "content": "secret words"}, {"type": "pause"}]
    assert (await api.client.post(f"/v1/runs/{run['id']}/input", json={"items": items})).status_code == 202
    (line,) = fields()
    assert (line["operation"], line["items"], line["key"]) == ("send_input", ["message", "pause"], "ann")
    assert "secret words" not in str(line)
    steered = {**BODY, "conversation_id": run["conversation_id"], "on_conflict": "steer"}
    assert (await api.client.post("/v1/runs", json=steered)).headers["Palaver-Steered"] == "true"
    (line,) = fields()
    assert (line["operation"], line["run"], line["steered"]) == ("submit", run["id"], True)


async def test_many_at_once_are_a_line_with_their_number(api: World, fields: Any) -> None:
    for _ in range(3):
        await api.submit(tags=["nightly"])
    action = {"action": "cancel", "filter": {"tag": "nightly"}}
    assert (await api.client.post("/v1/runs/actions", json=action)).json()["done"] == 3
    (line,) = fields()
    assert {"operation": "act_on_runs", "action": "cancel", "count": 3, "key": "ann"}.items() <= line.items()


async def test_what_was_refused_or_only_read_is_not_in_it(api: World, fields: Any) -> None:
    run = await api.submit()
    assert (await api.client.delete(f"/v1/runs/{run['id']}")).status_code == 409
    assert (await api.client.get(f"/v1/runs/{run['id']}")).status_code == 200
    wrong = {"Authorization": "Bearer another-key-0123456789"}
    assert (await api.client.post(f"/v1/runs/{run['id']}/cancel", headers=wrong)).status_code == 401
    assert fields() == []


async def test_what_may_have_had_an_effect_is_in_it(api: World, fields: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("away")

    run = await api.submit()
    monkeypatch.setattr(api.store.runs, "cancel", away)
    assert (await api.client.post(f"/v1/runs/{run['id']}/cancel")).status_code >= 500
    (line,) = fields()
    assert (line["operation"], line["status"], line["key"]) == ("cancel", "unknown", "ann")


@pytest.mark.slow
async def test_each_operation_that_is_left_out_exists(api: World) -> None:
    document = (await api.client.get("/openapi.json")).json()
    changing = {
        operation["operationId"]
        for path in document["paths"].values()
        for method, operation in path.items()
        if method.upper() not in READING
    }
    assert changing >= {name for dialect in dialects_of(("*",)) for name in dialect.unaudited}
