"""Chats of the AI SDK at the API: messages, answers to calls, coming back, stopping, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from palaver.schemas.models import Message, ToolCall
from palaver.steps.verdicts import Continue, Finish, OpenCall
from palaver.vocabulary.lifecycle import StopReason
from tests.unit.api_world import call
from tests.unit.chat_page import CHAT, Page, assembled, check, chunks_of, ended, page, said, texts

SHOP: Final = {"name": "pick_colour", "description": "Ask the person for a colour."}


@pytest.fixture
async def chat() -> AsyncIterator[Page]:
    async with page(client_tools=[SHOP]) as made:
        yield made


async def test_a_message_is_answered_as_it_is_written(chat: Page) -> None:
    request, run = await chat.begin(said("hello"))
    lease = await chat.api.claim(run)
    await chat.api.say(lease, "Good ", "day")
    await request.until(lambda body: b"day" in body)
    await chat.api.finish(run, "Good day", lease=lease)
    chunks = await ended(request)
    check(chunks)
    shown = assembled(chunks)
    assert (shown["id"], shown["metadata"]) == (run["id"], {"runId": run["id"]})
    assert texts(shown) == ["Good day"]
    assert chunks[-1]["finishReason"] == "stop"
    assert (await chat.messages())["messages"] == [
        {"id": "msg_2", "role": "user", "parts": [{"type": "text", "text": "hello"}]},
        shown,
    ]


async def test_the_same_message_again_is_the_same_answer(chat: Page) -> None:
    first, run = await chat.begin(said("hello"))
    again, same = await chat.begin(said("hello"))
    assert same["id"] == run["id"]
    await chat.api.finish(run, "Good day")
    assert [texts(assembled(await ended(each))) for each in (first, again)] == [["Good day"]] * 2


async def test_a_thousand_at_once_make_one_conversation(chat: Page) -> None:
    requests = [chat.send(said("hello", f"m-{number % 10}")) for number in range(60)]
    await asyncio.gather(*(each.until(lambda body: b"start" in body) for each in requests))
    runs = {chunks_of(each.body)[0]["messageId"] for each in requests}
    assert len(runs) == 10
    listed = (await chat.api.client.get("/v1/conversations")).json()["data"]
    assert len(listed) == 1
    for each in requests:
        each.disconnect()


async def test_coming_back_brings_the_whole_answer_and_204_where_there_is_none(chat: Page) -> None:
    nothing = chat.resume()
    await nothing.until(lambda _: nothing.over)
    assert (nothing.status, nothing.body) == (204, b"")
    first, run = await chat.begin(said("hello"))
    lease = await chat.api.claim(run)
    await chat.api.say(lease, "Good ", "day")
    await first.until(lambda body: b"day" in body)
    first.disconnect()
    back = chat.resume()
    await back.until(lambda body: b"day" in body)
    await chat.api.finish(run, "Good day, Ada", lease=lease)
    chunks = await ended(back)
    check(chunks)
    assert chunks[0]["type"] == "start"
    assert texts(assembled(chunks)) == ["Good day, Ada"]


async def test_stopping_cancels_the_answer_that_is_meant(chat: Page) -> None:
    assert await chat.stop() == {"stopped": False, "runId": None}
    request, run = await chat.begin(said("hello"))
    stale = "run_00" + "0" * 26
    assert await chat.stop(runId=stale) == {"stopped": False, "runId": run["id"]}
    assert await chat.stop(runId=run["id"]) == {"stopped": True, "runId": run["id"]}
    chunks = await ended(request)
    check(chunks)
    assert [each["type"] for each in chunks[-2:]] == ["abort", "finish"]
    assert chunks[-1]["finishReason"] == "interrupted"
    assert (await chat.run(run["id"]))["status"] == "cancelled"


async def test_text_of_an_attempt_that_failed_is_taken_back(chat: Page) -> None:
    request, run = await chat.begin(said("hello"))
    lease = await chat.api.claim(run)
    await chat.api.say(lease, "Good mor")
    await request.until(lambda body: b"mor" in body)
    await chat.api.store.steps.release(lease)
    lease = await chat.api.claim(run)
    await chat.api.say(lease, "Good day")
    await chat.api.finish(run, "Good day", lease=lease)
    chunks = await ended(request)
    check(chunks)
    assert [each["type"] for each in chunks].count("reset-step") == 1
    assert texts(assembled(chunks)) == ["Good day"]


async def ask(chat: Page, run: dict[str, Any], *calls: OpenCall) -> None:
    await chat.api.ask(run, *calls)


@pytest.mark.parametrize("approved", [True, False])
async def test_a_call_is_approved_or_denied_and_the_same_message_goes_on(chat: Page, approved: bool) -> None:
    request, run = await chat.begin(said("hello"))
    await ask(chat, run, call("call_1", "approval"))
    chunks = await ended(request)
    check(chunks)
    assert chunks[-1]["finishReason"] == "tool-calls"
    waiting = assembled(chunks)
    (part,) = [each for each in waiting["parts"] if each["type"] == "dynamic-tool"]
    assert (part["state"], part["providerExecuted"], part["input"]) == ("approval-requested", True, {"expression": "2+2"})
    assert (await chat.messages())["messages"][-1] == waiting
    part |= {"state": "approval-responded", "approval": {"id": part["approval"]["id"], "approved": approved, "reason": "no"}}
    going_on = chat.send(said("hello"), waiting)
    await going_on.until(lambda body: b"tool-approval-response" in body)
    if approved:
        await chat.api.store.steps.claim_tool  # type: ignore[attr-defined]
    else:
        await chat.api.finish(await chat.run(run["id"]), "As you like")
    more = await ended(going_on)
    check(more, ["call_1"])
    assert more[0]["messageId"] == run["id"]
