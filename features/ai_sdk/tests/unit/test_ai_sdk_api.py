"""Chats of the AI SDK at the API: messages, answers to calls, coming back, stopping, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson
import pytest

from features.ai_sdk.tests.unit.chat_page import Page, assembled, check, chunks_of, ended, page, said, texts
from palaver.errors import ErrorClass, Failure
from palaver.schemas.actions import ServerQuestion
from palaver.schemas.models import Message
from palaver.steps.leases import Lease
from palaver.steps.verdicts import AskPerson, Continue, Finish, OpenCall, RetryAfter, ToolOutcome
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of
from tests.unit.api_world import AGENT, call
from tests.unit.mcp_host import publish
from tests.unit.test_api_actions_below import call_agent

SHOP: Final = {"name": "pick_colour", "description": "Ask the person for a colour."}


@pytest.fixture
async def chat() -> AsyncIterator[Page]:
    async with page(client_tools=[SHOP]) as made:
        yield made


async def test_a_message_is_answered_as_it_is_written(chat: Page) -> None:
    request, run = await chat.begin(said("hello"))
    lease = await chat.api.claim(run)
    await chat.api.say(lease, "Good ", "day")
    await request.until(lambda body: b'day"' in body)
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


@pytest.mark.slow
async def test_the_same_message_again_is_the_same_answer(chat: Page) -> None:
    first, run = await chat.begin(said("hello"))
    again, same = await chat.begin(said("hello"))
    assert same["id"] == run["id"]
    await chat.api.finish(run, "Good day")
    assert [texts(assembled(await ended(each))) for each in (first, again)] == [["Good day"]] * 2


@pytest.mark.slow
async def test_a_thousand_at_once_make_one_conversation(chat: Page) -> None:
    requests = [chat.send(said("hello", f"m-{number % 5}")) for number in range(30)]
    await asyncio.gather(*(each.until(lambda body: b"start" in body) for each in requests))
    runs = {chunks_of(each.body)[0]["messageId"] for each in requests}
    assert len(runs) == 5
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
    await first.until(lambda body: b'day"' in body)
    first.disconnect()
    back = chat.resume()
    await back.until(lambda body: b'day"' in body)
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
    await request.until(lambda body: b'mor"' in body)
    await chat.api.store.steps.settle(lease, RetryAfter(0.0, Failure.of(ErrorClass.CONNECTION)))
    lease = await chat.api.claim(run)
    await chat.api.say(lease, "Good day")
    await chat.api.finish(run, "Good day", lease=lease)
    chunks = await ended(request)
    check(chunks)
    assert [each["type"] for each in chunks].count("reset-step") == 1
    assert texts(assembled(chunks)) == ["Good day"]
    (told,) = [each["data"] for each in chunks if each.get("data", {}).get("reason") == "backoff"]
    assert (told["code"], told["text"]) == ("connection", "Something failed. It is tried again.")


async def waiting(chat: Page, *calls: OpenCall) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run that waits for answers to these calls, and its message as the client has it."""
    request, run = await chat.begin(said("hello"))
    await chat.api.ask(run, *calls)
    chunks = await ended(request)
    check(chunks)
    assert chunks[-1]["finishReason"] == "tool-calls"
    shown = assembled(chunks)
    assert (await chat.messages())["messages"][-1] == shown
    return run, shown


async def claimed(chat: Page, run: dict[str, Any], step: str, queue: str) -> Lease:
    lease = await chat.api.store.steps.claim(
        run["id"], run["conversation_id"], step, queues=(queue,), worker="w-1", nonce="n", known=0
    )
    assert isinstance(lease, Lease)
    return lease


def decided(message: dict[str, Any], approved: bool, **more: Any) -> dict[str, Any]:
    """The message after a decision on all that waits for one."""
    parts = [
        {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": approved, **more}}
        if part.get("state") == "approval-requested"
        else part
        for part in message["parts"]
    ]
    return {**message, "parts": parts}


async def test_a_call_is_approved_and_the_same_message_goes_on(chat: Page) -> None:
    run, message = await waiting(chat, call("call_1", "approval"))
    (part,) = [each for each in message["parts"] if each["type"] == "dynamic-tool"]
    assert (part["state"], part["providerExecuted"]) == ("approval-requested", True)
    assert part["input"] == {"expression": "2+2"}
    answer = decided(message, True)
    requests = [chat.send(said("hello"), answer) for _ in range(2)]
    for each in requests:
        await each.until(lambda body: b"tool-approval-response" in body)
    lease = await claimed(chat, run, "1/call_1", "tools")
    done = Message(role="tool", call_id="call_1", name="calculator", content='{"sum": 4}')
    await chat.api.store.steps.settle(lease, Continue(outcomes=(ToolOutcome(done),)))
    await chat.api.finish(run, "It is 4")
    for each in requests:
        more = await ended(each)
        check(more, ["call_1"])
        assert [more[0]["messageId"], more[-1]["finishReason"]] == [run["id"], "stop"]
        assert [chunk["output"] for chunk in more if chunk["type"] == "tool-output-available"] == [{"sum": 4}]
        assert texts(assembled([*(each for each in more if not each["type"].startswith("tool"))])) == ["It is 4"]
    late = chat.send(said("hello"), answer)
    assert [each["type"] for each in await ended(late)][1] == "tool-approval-response"
    back = await ended(chat.resume())
    check(back)
    assert assembled(back) == (await chat.messages())["messages"][-1]


async def test_a_call_is_denied_with_a_reason(chat: Page) -> None:
    run, message = await waiting(chat, call("call_1", "approval"))
    request = chat.send(decided(message, False, reason="Not on a Sunday."))
    await request.until(lambda body: b"tool-output-denied" in body)
    await chat.api.finish(run, "As you like")
    chunks = await ended(request)
    check(chunks, ["call_1"])
    (response,) = [each for each in chunks if each["type"] == "tool-approval-response"]
    assert (response["approved"], response["reason"]) == (False, "Not on a Sunday.")


async def test_a_reason_is_as_long_as_the_limit_says(chat: Page) -> None:
    run, message = await waiting(chat, call("call_1", "approval"))
    most = limit_of("deny_reason")
    refused = await chat.answer(decided(message, False, reason="x" * (most + 1)))
    assert (refused.status_code, f"/approval/reason: must be a text of at most {most}" in refused.text) == (422, True)
    request = chat.send(decided(message, False, reason="x" * most))
    await request.until(lambda body: b"tool-output-denied" in body)
    await chat.api.finish(run, "As you like")
    check(await ended(request), ["call_1"])


async def test_a_tool_of_the_page_is_answered_and_another_call_still_waits(chat: Page) -> None:
    run, message = await waiting(chat, call("call_1", "client_tool", "pick_colour"), call("call_2", "approval"))
    mine = [each for each in message["parts"] if each["type"] == "tool-pick_colour"]
    assert [(each["toolCallId"], each["state"], "providerExecuted" in each) for each in mine] == [
        ("call_1", "input-available", False)
    ]
    mine[0] |= {"state": "output-available", "output": {"colour": "red"}}
    chunks = await ended(chat.send(message))
    check(chunks, ["call_1", "call_2"])
    assert [each["type"] for each in chunks] == ["start", "tool-output-available", "finish-step", "finish"]
    assert (chunks[1]["output"], chunks[-1]["finishReason"]) == ({"colour": "red"}, "tool-calls")
    assert [each["tool"] for each in (await chat.run(run["id"]))["pending_actions"]] == ["calculator"]
    request = chat.send(decided(message, False))
    await request.until(lambda body: b"tool-output-denied" in body)
    await chat.api.finish(run, "Red it is")
    check(await ended(request), ["call_1", "call_2"])


async def test_an_answer_that_nobody_waits_for_does_not_begin_again(chat: Page) -> None:
    run, message = await waiting(chat, call("call_1", "client_tool", "pick_colour"))
    for part in message["parts"]:
        if part["type"] == "tool-pick_colour":
            part |= {"state": "output-error", "errorText": "closed"}
    await chat.stop()
    chunks = await ended(chat.send(message))
    check(chunks, ["call_1"])
    assert chunks[-1]["finishReason"] == "interrupted", "else the client sends it again by itself, for ever"
    assert (await chat.run(run["id"]))["status"] == "cancelled"
    refused = await chat.answer({**message, "parts": []})
    assert (refused.status_code, "nothing_to_answer" in refused.text) == (409, True)


async def test_steering_stands_before_the_step_that_saw_it(chat: Page) -> None:
    request, run = await chat.begin(said("hello"))
    lease = await chat.api.claim(run)
    await chat.api.say(lease, "wa")
    await request.until(lambda body: b'"wa"' in body)
    steered, same = await chat.begin(said("In metres", "m-2"), on_conflict="steer")
    assert same["id"] == run["id"]
    await chat.api.go_on(lease)
    await chat.api.finish(run, "3 m")
    for each in (request, steered):
        chunks = await ended(each)
        check(chunks)
        shown = assembled(chunks)
        kinds = [part["type"] for part in shown["parts"]]
        assert kinds == ["step-start", "text", "steering-message", "step-start", "text"]
        assert texts(shown) == ["wait", "3 m"]


@pytest.mark.slow
async def test_another_answer_takes_the_place_of_one(chat: Page) -> None:
    request, run = await chat.begin(said("hello"))
    busy = await chat.answer(said("hello"), trigger="regenerate-message", messageId=run["id"])
    assert (busy.status_code, "conversation_busy" in busy.text) == (409, True)
    await chat.api.finish(run, "Good day")
    await ended(request)
    requests = [await chat.begin(said("hello"), trigger="regenerate-message", messageId=run["id"]) for _ in range(2)]
    again = {new["id"] for _, new in requests}
    assert len(again) == 1
    assert run["id"] not in again
    await chat.api.finish(requests[0][1], "Hello")
    for each, _ in requests:
        check(await ended(each))
    listed = (await chat.messages())["messages"]
    assert [(each["role"], texts(each)) for each in listed] == [("user", ["hello"]), ("assistant", ["Hello"])]
    newest, third = await chat.begin(said("hello"), trigger="regenerate-message", messageId=requests[0][1]["id"])
    assert third["id"] not in again
    same, fourth = await chat.begin(said("hello"), trigger="regenerate-message", messageId=requests[0][1]["id"])
    assert fourth["id"] == third["id"], "what it takes the place of is withdrawn, and is known still"
    for each in (newest, same):
        each.disconnect()


@pytest.mark.parametrize(
    ("messages", "fields", "status", "says"),
    [
        ([said("changed")], {}, 422, "was sent before: what was said stays as it was"),
        ([said("changed", "msg_2")], {"messageId": "msg_2"}, 422, "was sent before: what was said stays as it was"),
        ([{"id": "a", "role": "system", "parts": []}], {}, 422, "/messages/0/role: must be user"),
        ([{"id": "a", "role": "user", "parts": [{"type": "data-x", "data": 1}]}], {}, 422, "nothing else of a user"),
        ([{"id": "a", "role": "user", "parts": []}], {}, 422, "empty_input"),
        ([{"id": "a", "role": "user", "parts": "x"}], {}, 422, "must be a list of objects"),
        ([{"role": "user", "parts": []}], {}, 422, "/messages/0/id: must be a text"),
        ([{"id": "a", "role": "assistant", "parts": []}], {}, 422, "is not the id of an answer in this chat"),
        ([said("x", "m-9")], {"trigger": "regenerate-message", "messageId": "m-9"}, 422, "not the id of an answer"),
        ([said("x", "m-9")], {"agent": "other"}, 422, "/agent: is not a field here"),
        ([said("x", "m-9")], {"id": "a/b"}, 422, "/id: "),
        (
            [{"id": "a", "role": "user", "parts": [{"type": "file", "url": "ftp://x", "mediaType": "image/png"}]}],
            {}, 422, "/messages/0/parts/0/url: ",
        ),
    ],
)  # fmt: skip
async def test_what_does_not_fit_is_refused_in_a_sentence(
    chat: Page, messages: list[dict[str, Any]], fields: dict[str, Any], status: int, says: str
) -> None:
    request, _ = await chat.begin(said("hello"))
    request.disconnect()
    refused = await chat.answer(*messages, **fields)
    assert (refused.status_code, refused.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert says in refused.text
    assert refused.text.endswith(f", {refused.headers['x-request-id']})")


async def test_images_go_in_and_come_out(chat: Page) -> None:
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
    picture = {"type": "file", "url": pixel, "mediaType": "image/gif"}
    request, run = await chat.begin({"id": "m", "role": "user", "parts": [picture, {"type": "text", "text": "this?"}]})
    shown = Message.model_validate({"role": "assistant", "content": [{"type": "image", "url": pixel}]}, strict=False)
    await chat.api.store.steps.settle(await chat.api.claim(run), Finish(shown, StopReason.END_TURN))
    chunks = await ended(request)
    check(chunks)
    assert assembled(chunks)["parts"][1:] == [picture]
    listed = (await chat.messages())["messages"]
    assert listed[0]["parts"] == [picture, {"type": "text", "text": "this?"}]


async def test_errors_are_for_people_and_say_what_to_look_for(chat: Page) -> None:
    request, run = await chat.begin(said("hello"))
    await chat.api.fail(run)
    chunks = await ended(request)
    check(chunks)
    text = f"The provider does not accept the key. (authentication, authentication, {run['id']})"
    assert chunks[-2] == {"type": "error", "errorText": text}
    unknown = await chat.api.client.post("/ui/agents/nobody/chat", json={"id": "c", "messages": [said("hello")]})
    assert (unknown.status_code, "(invalid_request, unknown_agent, req_" in unknown.text) == (422, True)
    unfit = await chat.api.client.post("/ui/agents/Bad%20Name/chat", json={"id": "c", "messages": [said("hello")]})
    assert (unfit.status_code, "must be the name of an agent" in unfit.text) == (422, True)


@pytest.mark.slow
async def test_messages_come_in_pages(chat: Page) -> None:
    for number in range(5):
        request, run = await chat.begin(said(f"question {number}", f"m-{number}"))
        await chat.api.finish(run, f"answer {number}")
        await ended(request)
    found: list[dict[str, Any]] = []
    before = 0
    for _ in range(3):
        listed = await chat.messages(limit=2, before=before)
        found[:0] = listed["messages"]
        before = listed["nextBefore"]
    assert [text for each in found for text in texts(each)] == [
        f"{kind} {number}" for number in range(5) for kind in ("question", "answer")
    ]
    assert listed["nextBefore"] is None


async def test_a_call_id_that_comes_again_is_answered_again(chat: Page) -> None:
    request, run = await chat.begin(said("hello"))
    for step in (1, 2):
        await chat.api.ask(run, call("call_1", "client_tool", "pick_colour"))
        chunks = await ended(request)
        assert chunks[-1]["finishReason"] == "tool-calls"
        message = (await chat.messages())["messages"][-1]
        (waiting_call,) = [part for part in message["parts"] if part.get("state") == "input-available"]
        waiting_call |= {"state": "output-available", "output": "blue"}
        request = chat.send(message)
        await request.until(lambda body: b"tool-output-available" in body)
        assert (await chat.run(run["id"]))["step"] == step + 1
    await chat.api.finish(run, "painted")
    chunks = await ended(request)
    check(chunks, ["call_1", "call_1~2"])
    assert [each["toolCallId"] for each in chunks if each["type"] == "tool-output-available"] == ["call_1~2"]


async def test_an_answer_stays_that_no_other_one_may_take_the_place_of(chat: Page) -> None:
    request, run = await chat.begin(said("hello"))
    await chat.api.finish(run, "Good day")
    await ended(request)
    body = {"id": chat.chat_id, "messages": [said("hello")], "trigger": "regenerate-message", "messageId": run["id"]}
    refused = await chat.api.client.post("/ui/agents/nobody/chat", json=body)
    assert (refused.status_code, "unknown_agent" in refused.text) == (422, True)
    assert [texts(each) for each in (await chat.messages())["messages"]] == [["hello"], ["Good day"]]


async def test_a_question_is_a_part_that_takes_its_answer(chat: Page) -> None:
    request, run = await chat.begin(said("hello"))
    await chat.api.ask(run, call("call_1"))
    form = {"type": "object", "properties": {"colour": {"type": "string"}}}
    asked = AskPerson(ServerQuestion(asker="crm", message="Which?", form=form), 60.0, "{}")
    await chat.api.store.steps.settle(await claimed(chat, run, "1/call_1", "tools"), asked)
    chunks = await ended(request)
    check(chunks)
    assert chunks[-1]["finishReason"] == "tool-calls"
    message = assembled(chunks)
    assert (await chat.messages())["messages"][-1] == message
    (part,) = [each for each in message["parts"] if each["type"] == "data-palaver-question"]
    data = part["data"]
    assert {"asker": "crm", "message": "Which?", "form": form, "toolCallId": "call_1"}.items() <= data.items()
    assert part["id"] == data["actionId"]
    part["data"] = {**data, "answer": {"response": "perhaps"}}
    refused = await chat.answer(message)
    assert (refused.status_code, "/data/answer" in refused.text) == (422, True)
    part["data"] = {**data, "answer": {"response": "accept", "content": {"colour": "red"}}}
    request = chat.send(message)
    await request.until(lambda body: b"data-palaver-question" in body)
    lease = await chat.api.store.steps.claim(
        run["id"], run["conversation_id"], "1/call_1", queues=("tools",), worker="w-1", nonce="m", known=None
    )
    assert isinstance(lease, Lease)
    assert orjson.loads(lease.answer or "") == {"action": "accept", "content": {"colour": "red"}}
    done = Message(role="tool", call_id="call_1", name="calculator", content="red")
    await chat.api.store.steps.settle(lease, Continue(outcomes=(ToolOutcome(done),)))
    await chat.api.finish(run, "Red it is")
    chunks = await ended(request)
    check(chunks, ["call_1"])
    (settled,) = [each["data"] for each in chunks if each["type"] == "data-palaver-question"]
    assert (settled["decision"], settled["response"]) == ("answer", "accept")


@pytest.mark.slow
async def test_a_call_below_that_waits_is_shown_and_how_it_was_decided(chat: Page) -> None:
    api = chat.api
    await publish(api, "researcher", **AGENT)
    await publish(api, "support", **{**AGENT, "tools": ["calculator", "agent:researcher"]})
    request, run = await chat.begin(said("look"))
    (child,) = await call_agent(api, run, "call_1")
    await api.ask(child, call("a1", "approval"))
    await request.until(lambda body: b"data-palaver-approval" in body)
    (below,) = [each for each in chunks_of(request.body) if each["type"] == "data-palaver-approval"]
    assert (below["data"]["runId"], below["data"]["toolName"]) == (child["id"], "calculator")
    decision = {"type": "approval", "action_id": below["data"]["actionId"], "decision": "approve"}
    answer = await api.client.post(f"/v1/runs/{run['id']}/input", json={"items": [decision]})
    assert answer.status_code < 300, answer.text
    await request.until(lambda body: b'"decision":"approve"' in body)
    await chat.stop()
    check(await ended(request))


@pytest.mark.slow
async def test_calls_below_are_answered_by_parts_of_the_answer_above(chat: Page) -> None:
    api = chat.api
    await publish(api, "researcher", **{**AGENT, "client_tools": [SHOP]})
    await publish(api, "support", **{**AGENT, "tools": ["calculator", "agent:researcher"]})
    request, run = await chat.begin(said("look"))
    (child,) = await call_agent(api, run, "call_1")
    await api.ask(child, call("a1", "approval"), call("a2", "approval"), call("a3", "client_tool", "pick_colour"))
    await request.until(lambda body: body.count(b"data-palaver-approval") == 3)
    below = [each for each in chunks_of(request.body) if each["type"] == "data-palaver-approval"]
    yes, no, tool = below

    def part(asked: dict[str, Any], answer: Any) -> dict[str, Any]:
        return {**asked, "data": {**asked["data"], "answer": answer}}

    def message(*parts: dict[str, Any]) -> dict[str, Any]:
        return {"id": run["id"], "role": "assistant", "parts": [*parts]}

    for wrong in ({"approved": "yes"}, {"approved": False, "reason": 7}, {}, None, {"response": "perhaps"}):
        refused = await chat.answer(message(part(yes, wrong)))
        assert (refused.status_code, "/messages/0/parts/0/data/answer" in refused.text) == (422, True), refused.text
    assert (await chat.answer(message(yes))).status_code == 409, "no answer is in it"
    again = chat.send(
        message(
            part(yes, {"approved": True}),
            part(no, {"approved": False, "reason": "Not today."}),
            part(tool, {"output": {"colour": "red"}}),
        )
    )
    for each in (request, again):
        await each.until(lambda body: all(word in body for word in (b'"approve"', b'"deny"', b'"output"')))
    assert (await chat.run(run["id"]))["pending_below"] == []
    events = await api.client.get(f"/v1/runs/{child['id']}/events", headers={"accept": "application/json"})
    at_child = events.text
    assert "Not today." in at_child
    assert "red" in at_child
    await chat.stop()
    for each in (request, again):
        check(await ended(each), ["call_1"])


@pytest.mark.slow
async def test_an_answer_below_is_of_this_chat_alone(chat: Page) -> None:
    api = chat.api
    await publish(api, "researcher", **AGENT)
    await publish(api, "support", **{**AGENT, "tools": ["calculator", "agent:researcher"]})
    request, run = await chat.begin(said("look"))
    (child,) = await call_agent(api, run, "call_1")
    waits = await api.ask(child, call("a1", "approval"))
    answer = {"type": "data-palaver-approval", "id": waits["pending_actions"][0]["id"]}
    message = {"role": "assistant", "parts": [{**answer, "data": {"answer": {"approved": True}}}]}
    refused = await chat.answer({**message, "id": child["id"]})
    assert (refused.status_code, "is not the id of an answer in this chat" in refused.text) == (422, True)
    other = Page(api, "chat-2")
    _, elsewhere = await other.begin(said("hello"))
    seen = other.send({**message, "id": elsewhere["id"]})
    await seen.until(lambda body: b"start" in body)
    assert len((await chat.run(run["id"]))["pending_below"]) == 1
    for each in (chat, other):
        await each.stop()
    check(await ended(request))
