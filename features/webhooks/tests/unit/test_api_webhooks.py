"""Webhooks over the API: made, changed, rotated and removed; their deliveries, listed and made again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from features.webhooks.backlog import WebhookBacklogs
from features.webhooks.contract import AttemptOutcome
from features.webhooks.deliveries import Deliveries
from features.webhooks.delivery_records import RecordedAttempt
from palaver.config.settings import Settings
from palaver.store.sides import sides
from palaver.vocabulary.limits import limit_of
from tests.unit.api_world import SETTINGS, World, assert_problem, world

URL = "https://example.org/hook"
LOCAL = "http://receiver.internal:9000/hook"


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(SETTINGS.model_copy(update={"webhook_hosts": ("receiver.internal:9000",)})) as made:
        yield made


async def made(api: World, **body: Any) -> dict[str, Any]:
    """A new webhook."""
    answer = await api.client.post("/v1/webhooks", json={"url": URL, **body})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/webhooks/{found['id']}"
    return found


async def test_one_is_made_read_changed_and_removed(api: World) -> None:
    webhook = await made(api, description="orders", types=["run.failed"])
    secret = webhook.pop("secret")
    assert secret.startswith("whsec_")
    place = f"/v1/webhooks/{webhook['id']}"
    assert (await api.client.get(place)).json() == webhook
    assert (await api.client.get("/v1/webhooks")).json() == {"data": [webhook]}
    assert (webhook["enabled"], webhook["format"], webhook["types"]) == (True, "palaver", ["run.failed"])
    changed = await api.client.patch(place, json={"types": None, "enabled": False, "url": LOCAL})
    assert changed.status_code == 200
    assert {**webhook, "types": None, "enabled": False, "off_because": "disabled", "url": LOCAL} == changed.json()
    rotated = (await api.client.post(f"{place}/rotate", json={"overlap": 60})).json()
    assert rotated["secret"] not in (secret, "")
    assert len(rotated["secrets"]) == 2
    assert len((await api.client.post(f"{place}/rotate")).json()["secrets"]) == 3, "those of before sign, too"
    assert (await api.client.delete(place)).status_code == 204
    assert_problem(await api.client.get(place), 404, "webhook_not_found")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1/", "private network"), ("http://10.1.2.3/hook", "private network"),
        ("http://receiver.internal/", "private network"), ("https://example.org:8443/", "usual port"),
        ("ftp://example.org/", "http"), ("https://user:key@example.org/", "login"), ("https:///x", "host"),
        ("https://example.org/#x", "fragment"), ("https://exa mple.org/", "http"), ("http://[::1]/", "private network"),
        ("http://metadata/", "private network"), ("http://0x7f.1/", "private network"),
    ],
)  # fmt: skip
async def test_nothing_is_sent_to_such_an_address(api: World, url: str, why: str) -> None:
    webhook = await made(api)
    for answer in (
        await api.client.post("/v1/webhooks", json={"url": url}),
        await api.client.patch(f"/v1/webhooks/{webhook['id']}", json={"url": url}),
    ):
        problem = assert_problem(answer, 422, "validation_error")
        assert problem["errors"][0]["pointer"] == "/url"
        assert why in problem["errors"][0]["message"]


async def test_bodies_that_do_not_fit(api: World) -> None:
    webhook = await made(api)
    replay = f"/v1/webhooks/{webhook['id']}/replay"
    for path, body in (
        ("/v1/webhooks", {"url": URL, "types": []}),
        ("/v1/webhooks", {"url": URL, "types": ["run.unheard_of"]}),
        ("/v1/webhooks", {"url": "https://example.org/" + "x" * 2000}),
        (replay, {}),
        (replay, {"deliveries": ["msg_1"], "since": "2026-01-01T00:00:00Z"}),
        (replay, {"since": "2026-01-01T00:00:00"}),
    ):
        assert_problem(await api.client.post(path, json=body), 422, "validation_error")
    listed = f"/v1/webhooks/{webhook['id']}/deliveries"
    for cursor in ("x", "-1", "99999999", "9" * 300):
        assert_problem(await api.client.get(listed, params={"cursor": cursor}), 400, "invalid_cursor")


async def test_there_are_so_many_at_most_and_none_without_a_key_for_secrets(api: World) -> None:
    for _ in range(limit_of("webhooks")):
        await made(api)
    assert_problem(await api.client.post("/v1/webhooks", json={"url": URL}), 409, "webhooks_full")
    async with world(Settings(redis_url="redis://fake/0")) as bare:
        assert_problem(await bare.client.post("/v1/webhooks", json={"url": URL}), 422, "no_secret_key")


async def test_deliveries_are_listed_page_by_page_and_made_again(api: World) -> None:
    webhook = await made(api)
    runs = []
    for _ in range(3):
        run = await api.submit()
        await api.finish(run)
        runs.append(run["id"])
    deliveries = api.store.part(Deliveries)
    await deliveries.take_events("00")
    lease = await deliveries.claim(webhook["id"])
    assert lease is not None
    await deliveries.settle(lease, AttemptOutcome.FAILED, RecordedAttempt(lease.record.at, 12, 500, None, "oops"))
    place = f"/v1/webhooks/{webhook['id']}"
    shown = (await api.client.get(place)).json()
    assert (shown["pending"], shown["failed"], shown["failing_since"] is None) == (2, 1, False)
    found, query = [], {"limit": "2"}
    while True:
        answer = await api.client.get(f"{place}/deliveries", params=query)
        page = answer.json()
        found += page["data"]
        assert page["has_more"] == (page["next_cursor"] is not None) == ("link" in answer.headers)
        if not page["has_more"]:
            break
        query = {"limit": "2", "cursor": page["next_cursor"]}
    assert sorted(each["run_id"] for each in found) == sorted(runs)
    (failed,) = (await api.client.get(f"{place}/deliveries", params={"state": "failed"})).json()["data"]
    assert failed["attempts"] == [
        {"at": failed["created_at"], "latency_ms": 12, "status": 500, "error": None, "answer": "oops"}
    ]
    again = await api.client.post(f"{place}/replay", json={"deliveries": [failed["id"]]})
    assert again.json() == {"replayed": 1, "more": False}
    since = {"since": "2020-01-01T00:00:00Z", "until": "2099-01-01T00:00:00Z", "state": None}
    assert (await api.client.post(f"{place}/replay", json=since)).json() == {"replayed": 0, "more": False}


async def test_what_is_to_be_sent_is_seen_by_operators_and_measured(api: World) -> None:
    """By all webhooks together: what each is to be sent, and what became of attempts."""
    quiet, failing, gone = [(await made(api))["id"] for _ in range(3)]
    await api.finish(await api.submit())
    await api.finish(await api.submit())

    async def samples() -> dict[str, Any]:
        found = await api.store.part(WebhookBacklogs).samples()
        return {
            " ".join((name.removeprefix("palaver_webhook"), *labels)): value
            for name, values in found.items()
            for labels, value in values.items()
        }

    before = await samples()
    assert (before["_pending"], before["s on"]) == (0, 3)
    assert before["_oldest_seconds"] > 0, "nobody has taken them yet"
    deliveries = api.store.part(Deliveries)
    await deliveries.take_events("00")
    results = {failing: AttemptOutcome.AGAIN, gone: AttemptOutcome.GONE}
    for webhook_id in (quiet, failing, gone):
        lease = await deliveries.claim(webhook_id)
        assert lease is not None
        outcome = results.get(webhook_id, AttemptOutcome.DELIVERED)
        await deliveries.settle(lease, outcome, RecordedAttempt(1, 1, 500, None, ""), again_in=600)
    lease = await deliveries.claim(quiet)
    assert lease is not None
    await deliveries.settle(lease, AttemptOutcome.DELIVERED, RecordedAttempt(1, 1, 204, None, ""))
    lease = await deliveries.claim(failing)
    assert lease is not None
    await deliveries.let_go(lease, 60.0)
    after = await samples()
    assert {name: value for name, value in after.items() if value} == {
        "_attempts_total delivered": 2,
        "_attempts_total again": 1,
        "_attempts_total gone": 1,
        "_pending": 3,
        "s on": 1,
        "s failing": 1,
        "s off": 1,
    }, "one that was left to others is no attempt"
    shown = (await api.client.get("/v1/queues")).json()["webhooks"]
    assert {each["id"]: (each["tenant"], each["pending"], each["off_because"]) for each in shown} == {
        failing: ("default", 2, None),
        gone: ("default", 1, "gone"),
    }
    assert all(each["due_seconds"] == 0 and each["failing_since"] for each in shown)


def test_webhooks_have_a_section_of_exports() -> None:
    assert sides()["webhooks"].section == 8
