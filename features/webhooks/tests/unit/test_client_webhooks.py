"""What the clients and ``palaver webhooks`` do about webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from palaver.client import ConnectionFailed, NotFound
from tests.both_clients import Call, async_client
from tests.command_line import CommandResult
from tests.scripted_api import Reply, ScriptedAPI, answer, problem
from tests.unit.api_world import WEBHOOK_ID

LIST = "/v1/webhooks"
ONE = f"{LIST}/{WEBHOOK_ID}"
SECRET = "whsec_" + "A" * 43 + "="


def webhook(**more: Any) -> dict[str, Any]:
    """A webhook as the API answers it."""
    return {
        "id": WEBHOOK_ID, "url": "https://example.org/hook", "types": None, "format": "palaver", "description": None,
        "enabled": True, "off_because": None, "created_at": "2026-01-31T12:00:00Z", "created_by": "ann",
        "secrets": [{"id": "0a", "created_at": "2026-01-31T12:00:00Z", "expires_at": None}], "of_file": False,
        "pending": 1, "delivered": 2, "failed": 0, "dropped": 0, "failing_since": None, **more,
    }  # fmt: skip


def delivery(number: int) -> dict[str, Any]:
    """A delivery as the API answers it."""
    attempt = {"at": "2026-01-31T12:00:00Z", "latency_ms": 3, "status": 500, "error": None, "answer": "oops"}
    return {
        "id": f"msg_{number}", "type": "run.failed", "state": "failed", "created_at": "2026-01-31T12:00:00Z",
        "run_id": "run_00", "data": {"sequence": 7}, "attempts": [attempt], "next_attempt_at": None,
    }  # fmt: skip


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", LIST, answer(webhook(secret=SECRET), 201))
        server.on("GET", LIST, answer({"data": [webhook()]}))
        server.on("GET", ONE, answer(webhook()))
        server.on("PATCH", ONE, answer(webhook(enabled=False, off_because="disabled")))
        server.on("POST", f"{ONE}/rotate", answer(webhook(secret=SECRET)))
        server.on("POST", f"{ONE}/replay", answer({"replayed": 1, "more": False}))
        server.on("DELETE", ONE, Reply(204))
        page = {"data": [delivery(2), delivery(1)], "next_cursor": None, "has_more": False}
        server.on("GET", f"{ONE}/deliveries", answer(page))
        yield server


@async_client
def test_one_is_made_changed_and_removed(api: ScriptedAPI, call: Call) -> None:
    made = call(api.url, "create_webhook", "https://example.org/hook", types=["run.failed"])
    assert (made.secret, made.pending) == (SECRET, 1)
    assert SECRET not in repr(made)
    assert call(api.url, "webhooks")[0].id == call(api.url, "webhook", WEBHOOK_ID).id == WEBHOOK_ID
    assert call(api.url, "change_webhook", WEBHOOK_ID, enabled=False, types=None).off_because == "disabled"
    assert call(api.url, "rotate_webhook", WEBHOOK_ID, 60).secret == SECRET
    call(api.url, "delete_webhook", WEBHOOK_ID)
    assert [seen.body for seen in api.seen if seen.body is not None] == [
        {"url": "https://example.org/hook", "types": ["run.failed"], "format": "palaver"},
        {"enabled": False, "types": None},
        {"overlap": 60},
    ]


@async_client
def test_a_lost_answer_makes_no_second_one(api: ScriptedAPI, call: Call) -> None:
    api.on("POST", LIST, Reply(cut=True))
    with pytest.raises(ConnectionFailed):
        call(api.url, "create_webhook", "https://example.org/hook")
    assert len(api.seen) == 1
    api.on("DELETE", ONE, Reply(cut=True), problem(404, "webhook_not_found"))
    call(api.url, "delete_webhook", WEBHOOK_ID)
    api.on("DELETE", ONE, problem(404, "webhook_not_found"))
    with pytest.raises(NotFound):
        call(api.url, "delete_webhook", WEBHOOK_ID)


@async_client
def test_deliveries_are_made_again(api: ScriptedAPI, call: Call) -> None:
    assert call(api.url, "replay_deliveries", WEBHOOK_ID, ["msg_1"]).replayed == 1
    call(api.url, "replay_deliveries", WEBHOOK_ID, since=datetime(2026, 1, 1, tzinfo=UTC), state=None)
    with pytest.raises(ValueError, match="time zone"):
        call(api.url, "replay_deliveries", WEBHOOK_ID, since=datetime(2026, 1, 1))
    assert [seen.body for seen in api.seen] == [
        {"deliveries": ["msg_1"]},
        {"state": None, "since": "2026-01-01T00:00:00+00:00"},
    ]


def test_the_command(api: ScriptedAPI) -> None:
    made = CommandResult(api, "webhooks", "create", "https://example.org/hook", "--type", "run.failed")
    assert (made.code, made.out) == (0, f"{SECRET}\n")
    listed = CommandResult(api, "webhooks", "list").out.splitlines()
    assert listed[0].split() == ["WEBHOOK", "STATE", "PENDING", "DELIVERED", "FAILED", "URL"]
    assert listed[1].split()[:5] == [WEBHOOK_ID, "on", "1", "2", "0"]
    assert json.loads(CommandResult(api, "webhooks", "show", WEBHOOK_ID).out)["id"] == WEBHOOK_ID
    assert CommandResult(api, "webhooks", "disable", WEBHOOK_ID).out == f"{WEBHOOK_ID} is off\n"
    assert CommandResult(api, "webhooks", "enable", WEBHOOK_ID).code == 0
    assert CommandResult(api, "webhooks", "rotate", WEBHOOK_ID, "--overlap", "60").out == f"{SECRET}\n"
    sent = CommandResult(
        api, "webhooks", "deliveries", WEBHOOK_ID, "--limit", "1", "--state", "failed"
    ).out.splitlines()
    assert (len(sent), sent[1].split()[0], sent[1].split()[1]) == (2, "msg_2", "run.failed")
    assert CommandResult(api, "webhooks", "replay", WEBHOOK_ID, "msg_1").out == "1 of 1 are made again\n"
    assert CommandResult(api, "webhooks", "delete", WEBHOOK_ID, "--yes").out == f"deleted {WEBHOOK_ID}\n"
    api.on("GET", LIST, answer({"data": []}))
    assert CommandResult(api, "webhooks", "list").err == "No webhooks.\n"
