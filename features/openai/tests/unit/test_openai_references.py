"""References to items that responses keep, by OpenAI's own client: what the AI SDK sends without being told to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from features.openai import references
from features.openai.tests.unit.openai_world import CALCULATOR, MODEL, WEATHER, OpenAiWorld, serving_openai
from features.openai.tests.unit.test_openai_conversations import answered, told
from palaver.schemas.models import ToolCall
from palaver.vocabulary.ids import new_run_id
from tests.unit.api_world import call
from tests.unit.two_tenants import TENANTS, asking_as, tenants

HELLO = {"role": "user", "content": "hello"}


@pytest.fixture
async def there() -> AsyncIterator[OpenAiWorld]:
    async with serving_openai() as made:
        yield made


def ref(item: Any) -> dict[str, Any]:
    """A reference to an item, by itself or by its id."""
    return {"type": "item_reference", "id": item if isinstance(item, str) else item.id}


def says(item: Any) -> str:
    return str(item.content[0].text)


async def test_what_items_said_is_said_again_in_a_conversation_of_its_own(there: OpenAiWorld) -> None:
    client = there.client.responses
    first: Any = await client.create(
        model=MODEL, input="hello", tools=[{**CALCULATOR, "require_approval": "never"}], background=True
    )
    await there.ask(first, call("call_1"), text="I reckon.")
    await there.answer(first, "1/call_1", "4")
    await there.api.finish(await there.run_of(first), "It is 4.")
    first = await client.retrieve(first.id)
    assert [item.type for item in first.output] == ["message", "mcp_call", "message"]
    (question,) = (await client.input_items.list(first.id)).data
    # As the AI SDK does: a call that others made is named twice, as its call and as its result.
    reckons, called, answer = first.output
    said = [ref(question), ref(reckons), ref(called), ref(called), ref(answer), {"role": "user", "content": "sure?"}]
    second = await answered(there, "Yes.", input=said)
    assert second.conversation.id != first.conversation.id
    assert await told(there, second) == ["hello", "I reckon.", "4", "It is 4.", "sure?", "Yes."]
    shown = (await there.api.client.get(f"/v1/conversations/{second.conversation.id}/messages")).json()["data"]
    assert [(each["id"], each["name"]) for each in shown[1]["tool_calls"]] == [(called.id, "calculator")]
    # An item of an input is one, too; the third response refers to both others.
    items = (await client.input_items.list(second.id, order="asc")).data
    third = await answered(there, "No.", input=[ref(items[0]), ref(second.output[0]), *said[-1:]])
    assert await told(there, third) == ["hello", "Yes.", "sure?", "No."]


async def test_beside_a_response_or_a_conversation_only_what_is_not_there_is_said(there: OpenAiWorld) -> None:
    first, other = await answered(there, "one"), await answered(there, "two", input="else")
    said = [ref(first.output[0]), ref(other.output[0]), {"role": "user", "content": "and?"}]
    behind = await answered(there, "three", previous_response_id=first.id, input=said)
    assert await told(there, behind) == ["hello", "one", "two", "and?", "three"]
    beside = await answered(there, "four", conversation=other.conversation.id, input=said)
    assert await told(there, beside) == ["else", "two", "one", "and?", "four"]


@pytest.mark.parametrize("whole", [True, False], ids=["the call whole", "the call by reference"])
async def test_outputs_go_on_with_the_response_that_made_the_calls(there: OpenAiWorld, whole: bool) -> None:
    client = there.client.responses
    first: Any = await client.create(model=MODEL, input=[HELLO], tools=[WEATHER], background=True)
    await there.ask(first, call("call_1", "client_tool", "weather"), text="I look.")
    first = await client.retrieve(first.id)
    text, asked = first.output
    made = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"} if whole else ref(asked)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    said: Any = [{"role": "developer", "content": "Be kind."}, HELLO, ref(text), made, output]
    for _ in range(2):
        second: Any = await client.create(model=MODEL, input=said, tools=[WEATHER], background=True)
        assert (second.id, second.previous_response_id) == (f"{first.id}_1", first.id)
    await there.api.finish(await there.run_of(second), "It is sunny.")
    assert await told(there, second) == ["hello", "I look.", "sunny", "It is sunny."]
    # Once the response waits no more, the same is said anew.
    await there.api.client.post(f"/v1/runs/{(await there.run_of(second))['id']}/cancel")
    last = (await client.retrieve(second.id)).output[-1]
    third = await answered(there, "Gladly.", input=[*said, ref(last), {"role": "user", "content": "thanks"}])
    assert await told(there, third) == ["hello", "I look.", "sunny", "It is sunny.", "thanks", "Gladly."]
    # Also where the answer comes whole behind them.
    answer = {"role": "assistant", "content": "It is sunny."}
    fourth = await answered(there, "Gladly.", input=[*said, answer, {"role": "user", "content": "thanks"}])
    assert await told(there, fourth) == ["hello", "I look.", "sunny", "It is sunny.", "thanks", "Gladly."]


async def test_a_call_that_is_waited_for_no_more_is_answered_anew(there: OpenAiWorld) -> None:
    client = there.client.responses
    first: Any = await client.create(model=MODEL, input=[HELLO], tools=[WEATHER], background=True)
    await there.ask(first, call("call_1", "client_tool", "weather"))
    (asked,) = (await client.retrieve(first.id)).output
    await client.cancel(first.id)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    second = await answered(there, "Sunny.", input=[HELLO, ref(asked), output], tools=[WEATHER])
    assert second.conversation.id != first.conversation.id
    assert await told(there, second) == ["hello", "", "sunny", "Sunny."]


async def test_decisions_go_on_with_the_response_that_asked_for_them_and_are_history_later(there: OpenAiWorld) -> None:
    client = there.client.responses
    tools: Any = [{**CALCULATOR, "require_approval": "always"}]
    first: Any = await client.create(model=MODEL, input=[HELLO], tools=tools, background=True)
    await there.ask(first, call("call_1", "approval"), call("call_2", "approval"))
    one, two = (await client.retrieve(first.id)).output
    assert {one.id.rpartition("_")[2], two.id.rpartition("_")[2]} == {first.id.removeprefix("resp_")}
    decided = [
        {"type": "mcp_approval_response", "approval_request_id": item.id, "approve": item is one} for item in (one, two)
    ]
    said: Any = [HELLO, ref(one), decided[0], ref(two), decided[1]]
    second: Any = await client.create(model=MODEL, input=said, tools=tools, background=True)
    assert second.id == f"{first.id}_1"
    await there.answer(second, "1/call_1", "4")
    await there.api.finish(await there.run_of(second), "It is 4.")
    second = await client.retrieve(second.id)
    assert {item.approval_request_id for item in second.output if item.type == "mcp_call"} == {one.id, two.id}
    later = [*said, *(ref(item) for item in second.output), {"role": "user", "content": "thanks"}]
    third = await answered(there, "Gladly.", input=later)
    shown = await told(there, third)
    assert (shown[0], "4" in shown, shown[-3:]) == ("hello", True, ["It is 4.", "thanks", "Gladly."])


async def test_thoughts_are_taken_and_say_nothing(there: OpenAiWorld) -> None:
    first = await answered(there, "one")
    thought = first.output[0].id.replace("msg_", "rs_", 1)
    second = await answered(there, "two", input=[HELLO, ref(thought), ref(first.output[0]), HELLO])
    assert await told(there, second) == ["hello", "one", "hello", "two"]


@pytest.mark.parametrize("content", ["", [], [{"type": "output_text", "text": ""}]])
async def test_an_empty_message_of_the_assistant_says_nothing(there: OpenAiWorld, content: Any) -> None:
    said = [HELLO, {"role": "assistant", "content": content}, {"role": "user", "content": "there?"}]
    response = await answered(there, "Yes.", input=said)
    assert await told(there, response) == ["hello", "there?", "Yes."]


async def test_what_is_not_kept_or_out_of_reach_is_refused_alike_and_with_a_way_out(
    there: OpenAiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openai

    first, gone = await answered(there, "one"), await answered(there, "two")
    await there.client.responses.delete(gone.id)
    item = first.output[0].id
    unknown = "x", "", "msg_1", gone.output[0].id, f"{item}_9", f"{item}_f1", f"act_{'0' * 24}", first.id
    for item_id in unknown:
        with pytest.raises(openai.NotFoundError) as refused:
            await there.client.responses.create(model=MODEL, input=[HELLO, ref(item_id)])
        assert (refused.value.code, refused.value.param) == ("not_found", "input.1.id"), item_id
        assert "previous_response_id" in refused.value.message
    said: Any = [HELLO, {"type": "item_reference", "id": 7}]
    with pytest.raises(openai.BadRequestError) as malformed:
        await there.client.responses.create(model=MODEL, input=said)
    assert malformed.value.param == "input.1.id"
    other = await answered(there, "three")
    monkeypatch.setattr(references, "limit_of", {"referenced": 1}.__getitem__)
    said = [ref(first.output[0]), ref(other.output[0]), HELLO]
    with pytest.raises(openai.BadRequestError) as many:
        await there.client.responses.create(model=MODEL, input=said)
    assert "previous_response_id" in many.value.message


async def test_a_slip_is_no_item_that_could_be_referred_to(there: OpenAiWorld) -> None:
    client = there.client.responses
    first: Any = await client.create(model=MODEL, input=[HELLO], tools=[WEATHER], background=True)
    await there.slip(first, ToolCall(id="call_1", name="weather", arguments="{"), text="I look.")
    await there.api.finish(await there.run_of(first), "Sunny.")
    items = (await client.retrieve(first.id)).output
    second = await answered(there, "Yes.", input=[HELLO, *map(ref, items), HELLO])
    assert await told(there, second) == ["hello", "I look.", "Sunny.", "hello", "Yes."]


async def test_items_of_another_tenant_are_as_if_there_were_none() -> None:
    async with tenants() as api:
        body = {"model": MODEL, "input": "hello", "background": True}

        async def ask(item_id: str) -> bytes:
            said = {**body, "input": [ref(item_id), HELLO]}
            answer = await api.client.post("/openai/v1/responses", json=said)
            assert answer.status_code == 404, answer.text
            assert answer.json()["error"].pop("request_id") in answer.text
            return answer.content.replace(answer.json()["error"]["request_id"].encode(), b"")

        with asking_as(api, "acme"):
            made = (await api.client.post("/openai/v1/responses", json=body)).json()
            run = (await api.client.get(f"/v1/runs/{made['metadata']['palaver_run_id']}")).json()
            await api.finish({**run, "links": {"self": f"/v1/runs/{run['id']}"}})
            (item,) = (await api.client.get(f"/openai/v1/responses/{made['id']}")).json()["output"]
            said = {**body, "input": [ref(item["id"]), HELLO]}
            assert (await api.client.post("/openai/v1/responses", json=said)).status_code == 200
            absent = await ask(new_run_id("00", TENANTS["acme"]).replace("run_", "msg_") + "_1")
        with asking_as(api, "globex"):
            for item_id in (item["id"], item["id"].replace("msg_", "rs_")):
                assert await ask(item_id) == absent
