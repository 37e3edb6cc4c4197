"""The bounds of a caller at the chats of the AI SDK: scopes, and the one conversation of a page's token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from features.ai_sdk.tests.unit.chat_page import CHAT, Page, assembled, ended, said
from palaver.schemas.models import AgentSpec, Message
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue
from palaver.vocabulary.ids import new_conversation_id
from palaver.vocabulary.scopes import SCOPES, Scope
from tests.unit.api_world import AGENT, SETTINGS, World, call, world
from tests.unit.test_api_scopes import bearer

CLOSED: Final = SETTINGS.model_copy(update={"require_keys": True})


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(CLOSED) as made:
        await made.store.agents.keep("", "support", AgentSpec.model_validate(AGENT, strict=False))
        yield made


async def with_scopes(api: World, *scopes: Scope, **fields: Any) -> Page:
    """A page whose key has these scopes."""
    return Page(api, headers=await bearer(api, name="page", scopes=frozenset(scopes or SCOPES), **fields))


async def asking(api: World, run: dict[str, Any]) -> None:
    """Let the model ask for a call that waits for an approval."""
    lease = await api.store.steps.claim(
        run["id"], run["conversation_id"], "1", queues=("model",), worker="w-1", nonce="n", known=0
    )
    assert isinstance(lease, Lease)
    opened = call("call_1", "approval")
    message = Message(role="assistant", tool_calls=(opened.call,))
    await api.store.steps.settle(lease, Continue(message, calls=(opened,)))


async def test_each_kind_of_request_needs_its_scope(api: World) -> None:
    page = await with_scopes(api)
    request, run = await page.begin(said("hello"))
    await asking(api, run)
    message = assembled(await ended(request))
    for part in message["parts"]:
        if part.get("state") == "approval-requested":
            part |= {"state": "approval-responded", "approval": {**part["approval"], "approved": False}}
    acting = await with_scopes(api, "runs:act", "runs:read")
    for messages, fields, needs in (
        ([said("more", "m-2")], {}, "runs:submit"),
        ([message], {}, "actions:approve"),
        ([said("hello")], {"trigger": "regenerate-message"}, "runs:submit"),
    ):
        refused = await acting.answer(*messages, **fields)
        assert (refused.status_code, f"the scope {needs}" in refused.text) == (403, True), refused.text
    submitting = await with_scopes(api, "runs:submit")
    refused = await submitting.answer(said("hello"), trigger="regenerate-message")
    assert (refused.status_code, "the scope runs:act" in refused.text) == (403, True)
    unknown = {"type": "dynamic-tool", "toolCallId": "none", "state": "output-available", "output": "x"}
    refused = await submitting.answer({**message, "parts": [unknown]})
    assert (refused.status_code, "the scope runs:read" in refused.text) == (403, True), "it would be shown the run"
    assert (await page.run(run["id"]))["status"] == "requires_action"


@pytest.mark.slow
async def test_a_page_is_held_to_its_chat(api: World) -> None:
    begun = (await api.client.post("/v1/conversations", json={}, headers=(await with_scopes(api)).headers)).json()["id"]
    page = await with_scopes(api, conversation=begun)
    page.chat_id = begun
    request = page.send(said("hello"))
    await request.until(lambda body: b"start" in body)
    request.disconnect()
    assert [each["role"] for each in (await page.messages())["messages"]] == ["user"]
    assert (await page.stop())["stopped"]
    for other in ("chat-1", new_conversation_id(1, "00")):
        page.chat_id = other
        refused = await page.answer(said("hello"))
        assert (refused.status_code, "conversation_not_found" in refused.text) == (404, True)
        for path in ("stream", "messages"):
            read = await api.client.get(f"{CHAT}/{other}/{path}", headers=page.headers)
            assert read.status_code == 404, read.text
        stopped = await api.client.post(f"{CHAT}/{other}/stop", json={}, headers=page.headers)
        assert stopped.status_code == 404
    listed = await api.client.get("/v1/conversations", headers=(await with_scopes(api)).headers)
    assert [each["id"] for each in listed.json()["data"]] == [begun]
