"""Calls in responses, by OpenAI's own client: functions of the client, tools of the server, and decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from features.openai.tests.unit.openai_world import (
    CALCULATOR,
    MODEL,
    WEATHER,
    OpenAiWorld,
    kinds,
    numbers,
    plain,
    serving_openai,
)
from palaver.schemas.actions import ServerQuestion
from palaver.schemas.models import ToolCall
from palaver.steps.leases import Lease
from palaver.steps.verdicts import AskPerson, OpenCall
from tests.unit.api_world import call
from tests.unit.test_api_actions_below import call_agent
from tests.unit.test_api_subagents import LEAD, keep

FUNCTION = ["function_call_arguments.delta", "function_call_arguments.done"]


@pytest.fixture
async def there() -> AsyncIterator[OpenAiWorld]:
    async with serving_openai() as made:
        yield made


async def read_again(there: OpenAiWorld, response_id: str, **more: Any) -> list[dict[str, Any]]:
    """The same as they are on the wire."""
    stream: Any = await there.client.responses.retrieve(response_id, stream=True, **more)
    return plain([event async for event in stream])


async def streamed(there: OpenAiWorld, response_id: str, **more: Any) -> list[Any]:
    """The events of a response, by the client's helper."""
    async with there.client.responses.stream(response_id=response_id, **more) as helper:
        return [event async for event in helper]


async def test_a_function_of_the_client_is_called_and_answered(there: OpenAiWorld) -> None:
    import openai

    client = there.client.responses
    first = await client.create(model=MODEL, input="weather?", tools=[WEATHER], background=True)
    assert first.tools[0].name == "weather"
    await there.ask(first, call("call_1", "client_tool", "weather"), text="I look.")
    events = await streamed(there, first.id)
    assert [kind for kind in kinds(events) if "function" in kind] == FUNCTION
    waiting = await client.retrieve(first.id)
    assert (waiting.status, waiting.usage) == ("completed", None)
    assert [item.type for item in waiting.output] == ["message", "function_call"]
    assert (waiting.output[1].call_id, waiting.output[1].name) == ("call_1", "weather")
    with pytest.raises(openai.ConflictError) as refused:
        await client.create(model=MODEL, input="and?", previous_response_id=first.id)
    assert refused.value.code == "pending_action"
    answers: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "sunny"}]
    second = await client.create(model=MODEL, previous_response_id=first.id, input=answers, background=True)
    assert second.id == f"{first.id}_1"
    assert second.previous_response_id == first.id
    again = await client.create(model=MODEL, previous_response_id=first.id, input=answers, background=True)
    assert again.id == second.id
    run = await there.run_of(second)
    lease = await there.api.claim(run)
    await there.api.say(lease, "It is ", "sunny.")
    await there.api.finish(run, "It is sunny.", lease=lease)
    events = await streamed(there, second.id)
    assert (numbers(events)[0], kinds(events)[:2], kinds(events)[-1]) == (0, ["created", "in_progress"], "completed")
    assert events[-1].response.output_text == "It is sunny."
    assert await client.retrieve(first.id) == waiting
    items = (await client.input_items.list(second.id)).data
    assert [(item.type, item.output) for item in items] == [("function_call_output", "sunny")]
    items = (await client.input_items.list(first.id, order="asc")).data
    assert [(item.type, item.content[0].text) for item in items] == [("message", "weather?")]
    whole = await read_again(there, second.id)
    assert [event["sequence_number"] for event in whole] == numbers(events)
    for place, event in enumerate(whole):
        number = event["sequence_number"]
        assert await read_again(there, second.id, starting_after=number) == whole[place + 1 :]


BROKEN, UNKNOWN = '{"place": "Par', "no_such_tool"


@pytest.mark.parametrize("tools", [[WEATHER], [WEATHER, CALCULATOR]], ids=["functions", "and tools of the server"])
async def test_a_slip_that_the_model_was_told_of_is_no_call_of_a_server_that_was_not_named(
    there: OpenAiWorld, tools: list[dict[str, Any]]
) -> None:
    client = there.client.responses
    first: Any = await client.create(model=MODEL, input="weather?", tools=tools, background=True)
    slips = (
        ToolCall(id="call_1", name="weather", arguments=BROKEN),
        ToolCall(id="call_2", name=UNKNOWN, arguments="[1]"),
        ToolCall(id="call_3", name="calculator", arguments=""),
    )
    await there.slip(first, *slips, text="I look.")
    await there.ask(first, call("call_4", "client_tool", "weather"))
    named = len(tools) > 1
    events = await streamed(there, first.id)
    found: Any = await client.retrieve(first.id)
    for output in (events[-1].response.output, found.output):
        shown = [(item.type, getattr(item, "name", None), getattr(item, "arguments", "{}")) for item in output]
        assert shown == [
            ("message", None, "{}"),
            *([("mcp_call", UNKNOWN, "{}"), ("mcp_call", "calculator", "{}")] if named else []),
            ("function_call", "weather", '{"expression": "2+2"}'),
        ]
        assert {item.status for item in output if item.type == "mcp_call"} == ({"failed"} if named else set())
    assert [event.arguments for event in events if event.type.endswith("arguments.done")] == [
        *(["{}", "{}"] if named else []),
        '{"expression": "2+2"}',
    ]
    answers: Any = [{"type": "function_call_output", "call_id": "call_4", "output": "sunny"}]
    second: Any = await client.create(model=MODEL, previous_response_id=first.id, input=answers, background=True)
    await there.api.finish(await there.run_of(second), "It is sunny.")
    assert (await client.retrieve(second.id)).output_text == "It is sunny."
    # What a conversation shows of the slips parses, too.
    items: Any = await there.client.conversations.items.list(first.conversation.id, order="asc")
    assert [item.arguments for item in items.data if item.type == "function_call"] == [
        "{}", "{}", "{}", '{"expression": "2+2"}'
    ]  # fmt: skip


async def test_arguments_that_are_blank_are_an_empty_object_wherever_a_call_is_shown(there: OpenAiWorld) -> None:
    blank = OpenCall(
        ToolCall(id="call_1", name="weather", arguments=" "), idempotent=False, awaits="client_tool", timeout=60
    )
    first: Any = await there.client.responses.create(model=MODEL, input="weather?", tools=[WEATHER], background=True)
    await there.ask(first, blank)
    events = await streamed(there, first.id)
    assert [item.arguments for item in events[-1].response.output] == ["{}"]
    assert {event.delta for event in events if event.type.endswith("arguments.delta")} == {"{}"}
    await there.client.responses.cancel(first.id)
    tool: Any = {"type": "function", "function": {name: WEATHER[name] for name in ("name", "parameters")}}
    asking = there.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "weather?"}], tools=[tool]
    )
    task = asyncio.create_task(asking)
    await there.api.ask(await there.newest(), blank)
    (made,) = (await task).choices[0].message.tool_calls
    assert made.function.arguments == "{}"


async def test_an_answer_that_cannot_be_read_is_refused_with_its_place(there: OpenAiWorld) -> None:
    import openai

    client = there.client.responses
    first = await client.create(model=MODEL, input="weather?", tools=[WEATHER], background=True)
    await there.ask(first, call("call_1", "client_tool", "weather"))
    image = [{"type": "input_image", "image_url": "ftp://there/cat.png"}]
    file = [{"type": "input_file", "file_url": "ftp://there/cat.pdf"}]
    for call_id, output in (("c" * 201, "sunny"), ("call_1", image), ("call_1", file)):
        answers: Any = [{"type": "function_call_output", "call_id": call_id, "output": output}]
        with pytest.raises(openai.BadRequestError) as refused:
            await client.create(previous_response_id=first.id, input=answers, background=True)
        assert (refused.value.type, (refused.value.param or "")[:5]) == ("invalid_request_error", "input")


async def test_a_tool_of_the_server_is_shown_as_a_call_of_an_mcp_server(there: OpenAiWorld) -> None:
    client = there.client.responses
    tools: Any = [{**CALCULATOR, "require_approval": "never"}]
    response = await client.create(model=MODEL, input="2+2?", tools=tools, background=True)
    await there.ask(response, call("c1"), call("c2"))
    for name, result in (("c1", "4"), ("c2", "5")):
        await there.answer(response, f"1/{name}", result)
    await there.api.finish(await there.run_of(response), "4 and 5")
    events = await streamed(there, response.id)
    assert kinds(events).count("mcp_call.completed") == 2
    final = events[-1].response
    assert [(item.type, getattr(item, "output", None)) for item in final.output] == [
        ("mcp_call", "4"),
        ("mcp_call", "5"),
        ("message", None),
    ]
    whole = await read_again(there, response.id)
    assert whole[-1]["response"] == (await client.retrieve(response.id)).to_dict()


async def test_a_call_waits_for_a_decision(there: OpenAiWorld) -> None:
    import openai

    client = there.client.responses
    tools: Any = [{**CALCULATOR, "require_approval": "always"}]
    first = await client.create(model=MODEL, input="2+2?", tools=tools, background=True)
    await there.ask(first, call("c1", "approval"), call("c2", "approval"))
    events = await streamed(there, first.id)
    requests = [item for item in events[-1].response.output if item.type == "mcp_approval_request"]
    assert [(item.name, item.server_label) for item in requests] == [("calculator", "palaver")] * 2

    def said(request: Any, approve: bool, **more: Any) -> Any:
        return {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve, **more}

    with pytest.raises(openai.ConflictError) as half:
        await client.create(model=MODEL, previous_response_id=first.id, input=[said(requests[0], True)])
    assert half.value.code == "pending_action"
    answers = [said(requests[0], True), said(requests[1], False, reason="no")]
    second = await client.create(model=MODEL, previous_response_id=first.id, input=answers, background=True)
    await there.answer(second, "1/c1", "4")
    await there.api.finish(await there.run_of(second), "4")
    final = (await streamed(there, second.id))[-1].response
    calls = [item for item in final.output if item.type == "mcp_call"]
    assert {item.status for item in calls} == {"completed", "failed"}
    assert {item.approval_request_id for item in calls} == {request.id for request in requests}
    items = (await client.input_items.list(second.id)).data
    assert {(item.approval_request_id, item.approve) for item in items} == {
        (requests[0].id, True),
        (requests[1].id, False),
    }
    changed = [said(requests[0], False), said(requests[1], False)]
    with pytest.raises(openai.ConflictError) as late:
        await client.create(model=MODEL, previous_response_id=first.id, input=changed)
    assert late.value.code in ("action_already_resolved", "run_ended")


async def test_a_question_is_answered_by_the_native_api_and_the_conflict_says_so(there: OpenAiWorld) -> None:
    import openai

    client = there.client.responses
    first = await client.create(model=MODEL, input="2+2?", tools=[CALCULATOR], background=True)
    await there.ask(first, call("c1"))
    run = await there.run_of(first)
    lease = await there.api.store.steps.claim(
        run["id"], run["conversation_id"], "1/c1", queues=("tools",), worker="w", nonce="n", known=None
    )
    assert isinstance(lease, Lease)
    form = {"type": "object", "properties": {"approved": {"type": "string"}}}
    question = ServerQuestion(asker="crm", message="Which?", form=form)
    await there.api.store.steps.settle(lease, AskPerson(question, 60.0, "{}"))
    waiting = await client.retrieve(first.id)
    assert (waiting.status, [item.status for item in waiting.output]) == ("completed", ["incomplete"])
    (action,) = (await there.run_of(first))["pending_actions"]
    decided: Any = [{"type": "mcp_approval_response", "approval_request_id": action["id"], "approve": True}]
    for words in ("and?", decided):
        with pytest.raises(openai.ConflictError) as refused:
            await client.create(previous_response_id=first.id, input=words)
        assert refused.value.code == "pending_action"
        assert f"{action['id']}: POST /v1/runs/{run['id']}/input" in refused.value.message
    item = {"type": "answer", "action_id": action["id"], "response": "accept", "content": {"approved": "yes"}}
    answer = await there.api.client.post(f"/v1/runs/{run['id']}/input", json={"items": [item]})
    assert answer.status_code == 202, answer.text
    assert (await client.retrieve(f"{first.id}_1")).status == "in_progress"


@pytest.mark.slow
async def test_an_answer_for_a_run_below_leaves_the_response_as_it_is(there: OpenAiWorld) -> None:
    client = there.client.responses
    await keep(there.api, "researcher")
    await keep(there.api, "lead", **LEAD)
    first = await client.create(model="agent/lead", input="look", background=True)
    run = await there.run_of(first)
    (child,) = await call_agent(there.api, run, "c1")
    waiting = await there.api.ask(child, call("c1", "approval"))
    (action,) = waiting["pending_actions"]
    shown = await client.retrieve(first.id)
    (asked,) = shown.output
    assert (shown.status, asked.type, asked.id, asked.name) == (
        "in_progress", "mcp_approval_request", f"{action['id']}_{first.id.removeprefix('resp_')}", "calculator"
    )  # fmt: skip
    answer: Any = [{"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}]
    for _ in range(2):
        again = await client.create(previous_response_id=first.id, input=answer, background=True)
        assert (again.id, again.status) == (first.id, "in_progress")
        assert again == await client.retrieve(first.id)
        assert (await there.api.read(child))["pending_actions"] == []
        assert again.output == []


async def test_a_function_of_a_run_below_is_answered_by_the_id_that_the_response_shows(there: OpenAiWorld) -> None:
    client = there.client.responses
    await keep(there.api, "researcher", client_tools=[{"name": "open_file"}])
    await keep(there.api, "lead", **LEAD)
    first = await client.create(model="agent/lead", input="look", background=True)
    (child,) = await call_agent(there.api, await there.run_of(first), "c1")
    await there.api.ask(child, call("c1", "client_tool", "open_file"))
    (asked,) = (await client.retrieve(first.id)).output
    assert (asked.type, asked.name) == ("function_call", "open_file")
    answer: Any = [{"type": "function_call_output", "call_id": asked.call_id, "output": "text"}]
    again = await client.create(previous_response_id=first.id, input=answer, background=True)
    assert (again.id, again.status, again.output) == (first.id, "in_progress", [])
    assert (await there.api.read(child))["pending_actions"] == []
