"""AG-UI: runs as its clients follow, answer and find them again (ADR 0053)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from features.ag_ui.messages import said_in
from features.ag_ui.tests.unit.ag_ui_page import Page, kinds, shown
from palaver.errors import ErrorClass, Failure
from palaver.schemas.actions import ServerQuestion
from palaver.schemas.models import Message
from palaver.steps.leases import Lease
from palaver.steps.verdicts import AskPerson, Continue, RetryAfter, ToolOutcome
from tests.unit.api_world import AGENT, World, call, world
from tests.unit.test_api_actions_below import call_agent
from tests.unit.test_api_scopes import CLOSED, bearer
from tests.waiting import aeventually

TOOL: dict[str, Any] = {"name": "pick_colour", "description": "Ask for a colour.", "parameters": {"type": "object"}}


@asynccontextmanager
async def page(**agent: Any) -> AsyncIterator[tuple[World, Page]]:
    async with world() as api:
        answer = await api.client.put("/v1/agents/support", json={**AGENT, **agent})
        assert answer.status_code == 201, answer.text
        yield api, Page(api)


@pytest.mark.slow
async def test_a_turn_is_a_run() -> None:
    async with page() as (api, user):
        user.say("hello")
        heard = user.begin(body := user.body())
        run = await user.active()
        lease = await api.claim(run)
        # One delta: of two, a watcher that is slow has one event.
        await api.say(lease, "hello")
        await api.finish(run, "hello there", lease=lease)
        events = await heard
        assert kinds(events) == [
            "RUN_STARTED", "STEP_STARTED", "TEXT_MESSAGE_START", *["TEXT_MESSAGE_CONTENT"] * 2, "TEXT_MESSAGE_END",
            "STEP_FINISHED", "RUN_FINISHED",
        ]  # fmt: skip
        assert events[0]["protocolVersion"] == "1.0"
        assert events[-1]["outcome"] == {"type": "success"}
        assert events[-1]["result"] == {"runId": run["id"], "stopReason": "end_turn"}
        assert [(each["role"], each["content"]) for each in user.messages] == [
            ("user", "hello"), ("assistant", "hello there")
        ]  # fmt: skip
        assert (await api.read(run))["agent"]["name"] == "support"
        assert body["runId"] == "thread-1-run-1"


@pytest.mark.slow
async def test_the_same_run_again_begins_nothing_and_shows_the_thread_first() -> None:
    async with page() as (api, user):
        user.say("hello")
        heard = user.begin(body := user.body())
        run = await user.active()
        await api.finish(run, "one")
        await heard
        user.say("again")
        heard = user.begin(body := user.body())
        run = await user.active()
        await api.finish(run, "two")
        await heard
        before = user.messages
        user.messages = user.messages[:-1]
        events = await user.run(body)
        assert kinds(events)[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
        said = [(each["role"], each["content"]) for each in user.messages]
        assert said == [(each["role"], each["content"]) for each in before]
        # Clients put what they do not know by its id behind all others.
        assert [each["id"] for each in user.messages] == [each["id"] for each in before]
        assert len((await api.client.get("/v1/runs")).json()["data"]) == 2
        looked = await Page(api).run({**body, "messages": [], "runId": "look"})
        assert kinds(looked) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert [(each["role"], each["content"]) for each in shown([], looked)] == said


async def _said(api: World, run: dict[str, Any]) -> list[str]:
    """The words of the user that the log of a run's conversation has."""
    page = await api.client.get(f"/v1/conversations/{run['conversation_id']}/messages")
    return [each["content"] for each in page.json()["data"] if each["role"] == "user" and not each.get("withdrawn")]


async def test_a_message_that_comes_again_with_its_id_is_not_said_twice() -> None:
    async with page() as (api, user):
        user.say("hello")
        said = user.messages
        heard = user.begin(user.body())
        run = await user.active()
        await api.finish(run, "one")
        await heard
        user.messages = said
        for more in ({}, {"context": [{"description": "time", "value": "noon"}]}, {"tools": [TOOL]}):
            events = await user.run(user.body(**more))
            assert events[-1]["result"]["runId"] == run["id"]
            assert user.messages[-1]["content"] == "one"
            user.messages = said
        assert await _said(api, run) == ["hello"]
        # Some clients count their messages anew.
        user.messages = [{**said[0], "content": "good day"}]
        heard = user.begin(user.body())
        other = await user.active()
        await api.finish(other, "two")
        await heard
        assert await _said(api, run) == ["hello", "good day"]
        assert len((await api.client.get("/v1/runs")).json()["data"]) == 2


async def test_a_message_that_came_to_no_answer_is_answered_by_another_run_and_not_said_twice() -> None:
    async with page() as (api, user):
        user.say("hello")
        said = user.messages
        runs = list[dict[str, Any]]()
        for _ in range(3):
            user.messages = said
            heard = user.begin(body := user.body())
            runs.append(await user.active())
            await api.client.post(f"/v1/runs/{runs[-1]['id']}/cancel")
            await heard
            # The same request again begins nothing.
            user.messages = said
            await user.run(body)
        user.messages = said
        heard = user.begin(user.body())
        last = await user.active()
        await api.finish(last, "one")
        await heard
        assert await _said(api, last) == ["hello"]
        listed = [run["id"] for run in (await api.client.get("/v1/runs")).json()["data"]]
        assert listed == [last["id"], *[run["id"] for run in reversed(runs)]]


async def test_what_was_taken_back_is_said_again() -> None:
    async with page() as (api, user):
        user.say("hello")
        said = user.messages
        heard = user.begin(user.body())
        run = await user.active()
        await api.client.post(f"/v1/runs/{run['id']}/cancel", json={"mode": "rollback"})
        await heard
        assert await _said(api, run) == []
        user.messages = said
        heard = user.begin(user.body())
        await api.finish(await user.active(), "one")
        await heard
        assert await _said(api, run) == ["hello"]


async def test_text_that_is_tried_again_is_taken_back() -> None:
    async with page() as (api, user):
        user.say("hello")
        heard = user.begin(body := user.body())
        run = await user.active()
        lease = await api.claim(run)
        await api.say(lease, "rub", "bish")
        failed = Failure.of(ErrorClass.CONNECTION)
        settled = await api.store.steps.settle(lease, RetryAfter(0.0, failed))
        assert settled.status == "running"

        async def claimed() -> Lease | None:
            things, _ = await api.store.due.due()
            await api.store.due.sweep(things)
            found = await api.store.steps.claim(
                run["id"], run["conversation_id"], "1", queues=("model",), worker="w-1", nonce="again", known=0
            )
            return found if isinstance(found, Lease) else None

        again = await aeventually(claimed)
        assert again is not None
        await api.say(again, "good")
        await api.finish(run, "good", lease=again)
        events = await heard
        assert "MESSAGES_SNAPSHOT" in kinds(events)
        assert [(each["role"], each["content"]) for each in user.messages] == [("user", "hello"), ("assistant", "good")]
        # The answer is in the log by then: what takes the text back does not bring it before it is streamed.
        events = await user.run(body)
        assert kinds(events).count("MESSAGES_SNAPSHOT") == 2
        assert [(each["role"], each["content"]) for each in user.messages] == [("user", "hello"), ("assistant", "good")]


async def test_an_approval_is_an_interrupt_and_a_new_run_answers_it() -> None:
    async with page() as (api, user):
        user.say("count")
        heard = user.begin(user.body())
        run = await user.active()
        await api.ask(run, call("c1", "approval"), call("c2", "approval"))
        events = await heard
        assert events[-1]["outcome"]["type"] == "interrupt"
        first, second = events[-1]["outcome"]["interrupts"]
        assert first["reason"] == "tool_call"
        assert first["toolCallId"] == f"{run['id']}:1:c1"
        assert first["metadata"]["tool"] == "calculator"
        resume = [
            {"interruptId": first["id"], "status": "resolved", "payload": {"approved": False, "reason": "No."}},
            {"interruptId": second["id"], "status": "cancelled"},
        ]
        heard = user.begin(body := user.body(resume=resume))

        async def goes_on() -> bool:
            return bool((await api.read(run))["step"] == 2)

        await aeventually(goes_on)
        await api.finish(run, "as you like")
        events = await heard
        assert kinds(events) == [
            "RUN_STARTED", *["TOOL_CALL_RESULT"] * 2, "STEP_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED",
        ]  # fmt: skip
        results = [message["content"] for message in user.messages if message["role"] == "tool"]
        assert "No." in results[0]
        assert "put aside" in results[1]
        again = await user.run(body)
        assert kinds(again)[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
        assert len((await api.client.get("/v1/runs")).json()["data"]) == 1


async def test_a_clients_tool_is_left_to_it_and_its_message_answers() -> None:
    async with page() as (api, user):
        user.say("paint")
        heard = user.begin(user.body(tools=[TOOL]))
        run = await user.active()
        assert [tool["name"] for tool in run["agent"]["client_tools"]] == ["pick_colour"]
        assert run["agent"]["version"] == 1
        await api.ask(run, call("c1", "client_tool", "pick_colour"))
        events = await heard
        (pending,) = events[-1]["outcome"]["pendingToolCallIds"]
        assert pending == next(event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START")
        user.messages.append({"id": "t1", "role": "tool", "toolCallId": pending, "content": "blue"})
        heard = user.begin(body := user.body(tools=[TOOL]))

        async def goes_on() -> bool:
            return bool((await api.read(run))["step"] == 2)

        await aeventually(goes_on)
        await api.finish(run, "painted")
        events = await heard
        assert "TOOL_CALL_RESULT" not in kinds(events), "the client has it, and would show it once more"
        assert [each["content"] for each in user.messages if each["role"] == "tool"] == ["blue"]
        before = len(user.messages)
        again = await user.run(body)
        assert kinds(again)[1] == "MESSAGES_SNAPSHOT"
        assert before >= len(user.messages)
        assert len((await api.client.get("/v1/runs")).json()["data"]) == 1


@pytest.mark.slow
async def test_what_waits_below_is_an_interrupt_too() -> None:
    async with page() as (api, user):
        answer = await api.client.put("/v1/agents/researcher", json=AGENT)
        assert answer.status_code == 201
        lead = Page(api, agent="lead")
        await api.client.put("/v1/agents/lead", json={**AGENT, "tools": ["calculator", "agent:researcher"]})
        lead.say("look")
        heard = lead.begin(lead.body())
        (child,) = await call_agent(api, await lead.active(), "c1")
        await api.ask(child, call("a1", "approval"))
        events = await heard
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert interrupt["metadata"]["runId"] == child["id"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        heard = lead.begin(lead.body(resume=resume))

        async def approved() -> bool:
            return not (await api.read(child))["pending_actions"]

        await aeventually(approved)
        stopped = await api.client.post(f"/ag-ui/threads/{lead.thread}/cancel", json={})
        assert stopped.json()["stopped"] is True
        assert (await heard)[-1]["outcome"] == {"type": "cancelled"}
        assert (await api.client.post(f"/ag-ui/threads/{lead.thread}/cancel", json={})).json() == {
            "stopped": False,
            "runId": None,
        }
        assert user.messages == []


async def test_a_failure_is_an_error_without_words_of_the_provider() -> None:
    async with page() as (api, user):
        user.say("hello")
        heard = user.begin(user.body())
        run = await user.active()
        await api.fail(run)
        last = (await heard)[-1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "authentication")
        assert run["id"] in last["message"]


async def test_what_the_page_says_beside_words_goes_with_them() -> None:
    async with page() as (api, user):
        source = {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}
        parts = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]
        user.messages = [{"id": "u1", "role": "user", "content": parts}]
        heard = user.begin(user.body(context=[{"description": "page", "value": "orders"}]))
        run = await user.active()
        logged = (await api.client.get(f"/v1/conversations/{run['conversation_id']}/messages")).json()["data"]
        content = logged[0]["content"]
        assert [part["type"] for part in content] == ["text", "text", "image"]
        assert content[0]["text"] == "page: orders"
        await api.finish(run, "a picture")
        await heard
        looked = await Page(api).run({**user.body("look"), "messages": []})
        assert looked[1]["messages"][0]["content"][2]["source"] == source


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"state": {"a": 1}}, "/state: is not shared"),
        ({"resume": [{"interruptId": "run_1:act_1", "status": "resolved", "payload": {"approved": True}}]}, "/resume"),
        ({"resume": [{"interruptId": "x", "status": "resolved", "payload": "yes"}]}, "/resume/0/payload: must be"),
        ({"resume": [{"interruptId": "run_1:all", "status": "resolved", "payload": {"a": 1}}]}, "/resume/0: "),
        (
            {
                "resume": [
                    {"interruptId": "run_1:all", "status": "resolved", "payload": {"approved": True, "arguments": {}}}
                ]
            },
            "/resume/0: ",
        ),
        (
            {
                "resume": [
                    {
                        "interruptId": "run_1:act_1",
                        "status": "resolved",
                        "payload": {"approved": False, "reason": "x" * 2_001},
                    }
                ]
            },
            "/resume/0/payload/reason: must be a text of at most 2000",
        ),
        ({"messages": [{"id": "t", "role": "tool", "toolCallId": "c1", "content": "x"}]}, "is not the id of a call"),
        ({"messages": [{"id": "u", "role": "user", "content": [{"type": "audio", "source": {}}]}]}, "must be a text"),
        ({"messages": [{"id": "u", "role": "user", "content": 3}]}, "/messages/0/content"),
        ({"threadId": "a b"}, "/threadId"),
        ({"tools": [{"name": "a b", "description": ""}]}, "/tools/0/name"),
    ],
)
async def test_what_cannot_be_taken_is_said(more: dict[str, Any], says: str) -> None:
    async with page() as (api, user):
        user.say("hello")
        body = {"threadId": "t", "runId": "r", "messages": user.messages, **more}
        answer = await api.client.post("/ag-ui/agents/support", json=body)
        assert answer.status_code == 422, answer.text
        told = answer.json()
        assert set(told) == {"message", "code", "requestId"}
        assert says in told["message"], told


async def test_without_a_name_in_the_path_the_thread_has_its_agent() -> None:
    async with page() as (api, user):
        body = {"threadId": "t", "runId": "r1", "messages": [{"id": "u", "role": "user", "content": "hi"}]}
        assert (await api.client.post("/ag-ui", json=body)).json()["code"] == "no_agent"
        posted = user.api.client.post("/ag-ui", json={**body, "runId": "r2", "forwardedProps": {"agent": "support"}})
        heard = asyncio.ensure_future(posted)
        run = await user.active()
        await api.finish(run)
        assert (await heard).status_code == 200
        body["messages"] = [{"id": "u2", "role": "user", "content": "hi"}]
        tools = await api.client.post("/ag-ui", json={**body, "runId": "r3", "tools": [TOOL]})
        assert (tools.status_code, "client_tools" in tools.json()["message"]) == (422, True)


async def test_a_key_that_is_held_to_a_conversation_has_that_thread_alone() -> None:
    async with world(CLOSED) as api:
        api.client.headers.update(await bearer(api))
        assert (await api.client.put("/v1/agents/support", json=AGENT)).status_code == 201
        mine, other = await api.submit(agent="support"), await api.submit(agent="support")
        api.client.headers.update(await bearer(api, conversation=mine["conversation_id"]))
        for thread in (other["conversation_id"], "another"):
            body: dict[str, Any] = {"threadId": thread, "runId": "r", "messages": []}
            for path, sent in (
                ("/ag-ui/agents/support", body),
                ("/ag-ui", body),
                (f"/ag-ui/threads/{thread}/cancel", {}),
            ):
                answer = await api.client.post(path, json=sent)
                assert (answer.status_code, answer.json()["code"]) == (404, "conversation_not_found"), (path, thread)
        stopped = await api.client.post(f"/ag-ui/threads/{mine['conversation_id']}/cancel", json={})
        assert stopped.json() == {"stopped": True, "runId": mine["id"]}


async def test_a_question_of_a_server_is_an_interrupt_whose_payload_is_its_form() -> None:
    form = {"type": "object", "properties": {"approved": {"type": "string"}}}
    async with page() as (api, user):
        user.say("count")
        heard = user.begin(user.body())
        run = await api.ask(await user.active(), call("c1"))
        lease = await api.store.steps.claim(
            run["id"], run["conversation_id"], "1/c1", queues=("tools",), worker="w", nonce="n", known=None
        )
        assert isinstance(lease, Lease)
        await api.store.steps.settle(
            lease, AskPerson(ServerQuestion(asker="crm", message="Which?", form=form), 60.0, "{}")
        )
        (interrupt,) = (await heard)[-1]["outcome"]["interrupts"]
        assert (interrupt["reason"], interrupt["message"]) == ("input_required", "crm: Which?")
        assert interrupt["responseSchema"] == form
        assert interrupt["toolCallId"] == f"{run['id']}:1:c1"
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": "the second"}}]
        heard = user.begin(user.body(resume=resume))

        async def answered() -> bool:
            return not (await api.read(run))["pending_actions"]

        await aeventually(answered)
        claimed = await api.store.steps.claim(
            run["id"], run["conversation_id"], "1/c1", queues=("tools",), worker="w", nonce="m", known=None
        )
        assert isinstance(claimed, Lease)
        assert json.loads(claimed.answer or "") == {"action": "accept", "content": {"approved": "the second"}}
        result = Message(role="tool", call_id="c1", name="calculator", content="found")
        await api.store.steps.settle(claimed, Continue(outcomes=(ToolOutcome(result),)))
        await api.finish(run, "it is the second")
        assert (await heard)[-1]["type"] == "RUN_FINISHED"


async def test_a_call_id_that_comes_again_is_answered_again() -> None:
    async with page() as (api, user):
        user.say("paint")
        heard = user.begin(user.body(tools=[TOOL]))
        run = await user.active()
        for step in (1, 2):
            await api.ask(run, call("c1", "client_tool", "pick_colour"))
            events = await heard
            shown_calls = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
            assert events[-1]["outcome"]["pendingToolCallIds"] == shown_calls == [f"{run['id']}:{step}:c1"]
            user.messages.append({"id": f"t{step}", "role": "tool", "toolCallId": shown_calls[0], "content": "blue"})
            heard = user.begin(user.body(tools=[TOOL]))

            async def goes_on(to: int = step + 1) -> bool:
                return bool((await api.read(run))["step"] == to)

            await aeventually(goes_on)
        await api.finish(run, "painted")
        assert "TOOL_CALL_RESULT" not in kinds(await heard)
        results = [each["toolCallId"] for each in user.messages if each["role"] == "tool"]
        assert results == [f"{run['id']}:{step}:c1" for step in (1, 2)]


async def test_a_key_that_may_not_read_has_its_run_and_nothing_else_of_the_thread() -> None:
    async with world(CLOSED) as api:
        api.client.headers.update(await bearer(api))
        assert (await api.client.put("/v1/agents/support", json=AGENT)).status_code == 201
        user = Page(api)
        for text in ("hello", "again"):
            user.say(text)
            heard = user.begin(body := user.body())
            run = await user.active()
            await api.finish(run, f"{text} to you")
            await heard
        submitting = Page(api)
        submitting.headers = await bearer(api, name="key", scopes=frozenset({"runs:submit"}))
        events = await submitting.run(body)
        assert "MESSAGES_SNAPSHOT" not in kinds(events)
        assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["again to you"]


async def test_words_of_a_turn_that_failed_are_not_said_again() -> None:
    async with page() as (api, user):
        user.say("hello")
        heard = user.begin(user.body())
        await api.fail(await user.active())
        await heard
        user.say("are you there?")
        heard = user.begin(user.body())
        run = await user.active()
        logged = (await api.client.get(f"/v1/conversations/{run['conversation_id']}/messages")).json()["data"]
        assert [each["content"] for each in logged] == ["hello", "are you there?"]
        await api.finish(run)
        await heard


async def test_answers_and_words_in_one_request_may_come_twice() -> None:
    async with page() as (api, user):
        user.say("paint")
        heard = user.begin(user.body(tools=[TOOL]))
        run = await user.active()
        await api.ask(run, call("c1", "client_tool", "pick_colour"))
        (pending,) = (await heard)[-1]["outcome"]["pendingToolCallIds"]
        user.messages.append({"id": "t1", "role": "tool", "toolCallId": pending, "content": "blue"})
        user.say("and be quick")
        sent = user.messages
        heard = user.begin(body := user.body())

        async def steered() -> bool:
            logged = (await api.client.get(f"/v1/conversations/{run['conversation_id']}/messages")).json()["data"]
            return [each["content"] for each in logged if each["role"] == "user"] == ["paint", "and be quick"]

        await aeventually(steered)
        user.messages = sent
        again = user.begin(body)
        await api.finish(run, "painted")
        for events in (await heard, await again):
            assert events[-1]["outcome"] == {"type": "success"}
        assert await steered(), "it was said once"
        assert len((await api.client.get("/v1/runs")).json()["data"]) == 1


async def test_a_name_that_no_agent_can_have_is_refused() -> None:
    async with page() as (api, user):
        answer = await api.client.post("/ag-ui/agents/Bad%20Name", json=user.body())
        assert (answer.status_code, "must be the name of an agent" in answer.json()["message"]) == (422, True)
        user.say("hello")
        answer = await api.client.post("/ag-ui/agents/Bad%20Name", json=user.body())
        assert answer.status_code == 422


async def test_a_deleted_run_does_not_shut_its_thread() -> None:
    async with page() as (api, user):
        user.say("paint")
        heard = user.begin(user.body(tools=[TOOL]))
        run = await user.active()
        await api.ask(run, call("c1", "client_tool", "pick_colour"))
        (pending,) = (await heard)[-1]["outcome"]["pendingToolCallIds"]
        await api.client.post(f"/ag-ui/threads/{user.thread}/cancel", json={})
        assert (await api.client.delete(f"/v1/runs/{run['id']}")).status_code == 204
        user.messages.append({"id": "t1", "role": "tool", "toolCallId": pending, "content": "blue"})
        refused = await user.post(user.body())
        assert refused.status_code == 422
        user.say("hello")
        heard = user.begin(user.body())
        again = await user.active()
        await api.finish(again, "hello")
        assert (await heard)[-1]["outcome"] == {"type": "success"}


def test_of_a_request_a_stream_holds_the_words_of_the_user_alone() -> None:
    image = {"type": "image", "source": {"type": "data", "value": "x" * 1000, "mimeType": "image/png"}}
    messages: list[dict[str, Any]] = [
        {"id": "u1", "role": "user", "content": [{"type": "text", "text": "this?"}, image]},
        {"id": "a1", "role": "assistant", "content": "a picture"},
        {"role": "user", "content": "without an id"},
        {"id": "u2", "role": "user", "content": 3},
        {"id": "u3", "role": "user", "content": "why?"},
    ]
    assert said_in(messages) == [("u1", "this?"), ("u3", "why?")]
