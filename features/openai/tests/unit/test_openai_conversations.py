"""Conversations by OpenAI's own client, and responses that go on with others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from features.openai.tests.unit.openai_world import CALCULATOR, MODEL, OpenAiWorld, serving_openai
from palaver.schemas.models import Message
from palaver.steps.verdicts import Finish
from palaver.vocabulary.lifecycle import StopReason
from tests.unit.test_api_subagents import keep


@pytest.fixture
async def there() -> AsyncIterator[OpenAiWorld]:
    async with serving_openai() as made:
        yield made


async def answered(there: OpenAiWorld, text: str, **more: Any) -> Any:
    """A response that has come to an answer."""
    response = await there.client.responses.create(**{"model": MODEL, "input": "hello", "background": True, **more})
    await there.api.finish(await there.run_of(response), text)
    return await there.client.responses.retrieve(response.id)


async def told(there: OpenAiWorld, response: Any) -> list[str]:
    """What models are told of the conversation of a response."""
    answer = await there.api.client.get(f"/v1/conversations/{response.conversation.id}/messages")
    return [message["content"] for message in answer.json()["data"]]


@pytest.mark.slow
async def test_a_response_goes_on_with_the_newest_and_forks_behind_an_older_one(there: OpenAiWorld) -> None:
    first = await answered(there, "one")
    second = await answered(there, "two", previous_response_id=first.id, input="and?")
    assert second.conversation.id == first.conversation.id
    assert second.previous_response_id == first.id
    other = await answered(there, "three", previous_response_id=first.id, input="or?")
    assert other.conversation.id != first.conversation.id
    assert await told(there, second) == ["hello", "one", "and?", "two"]
    assert await told(there, other) == ["hello", "one", "or?", "three"]
    third = await answered(there, "four", previous_response_id=second.id, input="so?")
    assert await told(there, third) == ["hello", "one", "and?", "two", "so?", "four"]


async def test_items_that_come_again_with_their_ids_are_not_said_twice(there: OpenAiWorld) -> None:
    first = await answered(there, "one")
    items = [item.model_dump(mode="json", exclude_none=True) for item in first.output]
    assert items[0]["id"]
    again: Any = [*items, {"role": "user", "content": "and?"}]
    second = await answered(there, "two", previous_response_id=first.id, input=again)
    assert await told(there, second) == ["hello", "one", "and?", "two"]
    items += [item.model_dump(mode="json", exclude_none=True) for item in second.output]
    third = await answered(
        there, "three", conversation=second.conversation.id, input=[*items, {"role": "user", "content": "so?"}]
    )
    assert await told(there, third) == ["hello", "one", "and?", "two", "so?", "three"]
    elsewhere = await answered(there, "four", input=[*items, {"role": "user", "content": "so?"}])
    assert await told(there, elsewhere) == ["one", "two", "so?", "four"]
    added = await there.client.conversations.items.create(second.conversation.id, items=again)
    assert len(added.data) == 1
    # Without its id it cannot be told from a new one: it is said.
    del items[0]["id"]
    nameless: Any = [items[0], {"role": "user", "content": "well?"}]
    fifth = await answered(there, "five", previous_response_id=third.id, input=nameless)
    assert (await told(there, fifth))[-3:] == ["one", "well?", "five"]


async def test_a_response_waits_behind_one_that_goes_on(there: OpenAiWorld) -> None:
    import openai

    client = there.client.responses
    first = await client.create(model=MODEL, input="hello", background=True)
    second = await client.create(model=MODEL, input="and?", previous_response_id=first.id, background=True)
    assert (second.status, second.conversation.id) == ("queued", first.conversation.id)
    with pytest.raises(openai.ConflictError) as busy:
        await client.create(model=MODEL, input="or?", previous_response_id=first.id, background=True)
    assert busy.value.code == "conversation_busy"
    assert busy.value.response.headers["x-should-retry"] == "false"
    verdict = Finish(Message(role="assistant", content="one"), StopReason.END_TURN)
    settled = await there.api.store.steps.settle(await there.claimed(first), verdict)
    await there.api.app.state.backend.follow_up(settled)
    await there.api.finish(await there.run_of(second), "two")
    assert await told(there, second) == ["hello", "one", "and?", "two"]


@pytest.mark.slow
async def test_instructions_do_not_pile_up_where_the_model_is_left_out(there: OpenAiWorld) -> None:
    import openai

    await keep(there.api, "writer", instructions="Write.")
    for model, own in ((MODEL, ""), ("agent/writer", "Write.\n\n")):
        first = await answered(there, "one", model=model, instructions="Be kind.")
        last = first
        for number in range(3):
            about = {"conversation": first.conversation.id} if number == 1 else {"previous_response_id": last.id}
            more = {**about, "instructions": f"Be {number}.", "model": openai.omit}
            last = await answered(there, "more", **more)
            assert (last.instructions, last.model) == (f"{own}Be {number}.", model)
            assert last.conversation.id == first.conversation.id
        plain = await answered(there, "same", previous_response_id=last.id, model=openai.omit)
        assert (plain.instructions, plain.model) == (f"{own}Be 2.", model)
        last = await answered(there, "two", previous_response_id=plain.id, model=openai.omit, instructions="Be new.")
        assert (last.instructions, last.model) == (f"{own}Be new.", model)


async def test_a_key_holds_in_a_conversation_whose_agent_is_another_one_since(there: OpenAiWorld) -> None:
    import openai

    first = await answered(there, "one")
    more: Any = {"conversation": first.conversation.id, "input": "and?", "background": True, "temperature": 0.5}
    headers = {"idempotency-key": "k"}
    made = await there.client.responses.create(**more, extra_headers=headers)
    await there.api.finish(await there.run_of(made))
    await answered(there, "two", model="fake/tool-1", conversation=first.conversation.id)
    again = await there.client.responses.create(**more, extra_headers=headers)
    assert again.id == made.id
    with pytest.raises(openai.BadRequestError) as reused:
        await there.client.responses.create(**{**more, "input": "or?"}, extra_headers=headers)
    assert reused.value.code == "idempotency_key_reused"


@pytest.mark.slow
async def test_a_conversation_has_items_and_responses(there: OpenAiWorld) -> None:
    import openai

    client = there.client.conversations
    words: Any = [{"type": "message", "role": "user", "content": "I am Ada."}]
    made = await client.create(metadata={"topic": "demo"}, items=words)
    assert (made.object, made.metadata) == ("conversation", {"topic": "demo"})
    response = await answered(there, "Hello Ada.", conversation=made.id, input="Who am I?")
    assert response.conversation.id == made.id
    added = await client.items.create(made.id, items=words)
    listed = [item async for item in client.items.list(made.id, order="asc", limit=2)]
    assert [item.content[0].text for item in listed] == ["I am Ada.", "Who am I?", "Hello Ada.", "I am Ada."]
    assert added.data[0].id == listed[-1].id
    newest = [item.id async for item in client.items.list(made.id, limit=1)]
    assert newest == [item.id for item in reversed(listed)]
    assert await client.items.retrieve(listed[1].id, conversation_id=made.id) == listed[1]
    assert (await client.update(made.id, metadata={"a": "b"})).metadata == {"a": "b"}
    assert (await client.retrieve(made.id)).metadata == {"a": "b"}
    with pytest.raises(openai.BadRequestError) as wrong:
        await client.items.create(made.id, items=[{"type": "message", "role": "system", "content": "no"}])
    assert (wrong.value.code, wrong.value.param) == ("unsupported_content", "items")
    with pytest.raises(openai.NotFoundError):
        await client.items.retrieve("msg_99", conversation_id=made.id)
    assert (await client.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError) as gone:
        await client.retrieve(made.id)
    assert gone.value.code == "conversation_not_found"


async def test_a_conversation_takes_whole_turns_as_items(there: OpenAiWorld) -> None:
    """What the session of OpenAI's agents on the server writes, one call after the other."""
    import openai

    client = there.client.conversations
    made = await client.create(items=[])
    call: Any = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}", "id": "fc_x"}
    output: Any = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
    answer: Any = {
        "type": "message", "role": "assistant", "id": "msg_x", "status": "completed",
        "content": [{"type": "output_text", "text": "It is sunny.", "annotations": [], "logprobs": []}],
    }  # fmt: skip
    thought: Any = {"type": "reasoning", "id": "rs_x", "summary": []}
    for items in ([{"role": "user", "content": "weather?"}], [thought, call, output], [answer], [thought]):
        added = await client.items.create(made.id, items=items)
        assert len(added.data) == len(items) - (thought in items)
    listed = [item async for item in client.items.list(made.id, order="asc", limit=2)]
    assert [item.type for item in listed] == ["message", "function_call", "function_call_output", "message"]
    # As they come back, they are an input again; and the conversation goes on behind them.
    again: Any = [item.to_dict() for item in listed]
    other = await client.create(items=again)
    assert len([item async for item in client.items.list(other.id)]) == 4
    response = await answered(there, "Gladly.", conversation=made.id, input="thanks")
    assert await told(there, response) == ["weather?", "", "sunny", "It is sunny.", "thanks", "Gladly."]
    for items, code in (([call], "invalid_history"), ([output], "unsupported_content")):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.items.create(made.id, items=items)
        assert refused.value.code == code
    going_on = await there.client.responses.create(model=MODEL, input="and?", conversation=made.id, background=True)
    await there.claimed(going_on)
    await client.items.create(made.id, items=[{"role": "user", "content": "quick"}])
    with pytest.raises(openai.ConflictError) as busy:
        await client.items.create(made.id, items=[answer])
    assert busy.value.code == "conversation_busy"


@pytest.mark.slow
async def test_input_comes_as_a_history_with_calls_and_images(there: OpenAiWorld) -> None:
    image = "data:image/png;base64,iVBORw0KGgo="
    items: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A cat."}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": image}, {"type": "input_text", "text": "?"}]},
    ]
    response = await answered(there, "A dog.", input=items, instructions="Be kind.")
    assert response.instructions == "Be kind.\n\nBe brief."
    listed = [item async for item in there.client.responses.input_items.list(response.id, order="asc", limit=2)]
    assert [item.type for item in listed] == [
        "message", "function_call", "function_call_output", "message", "message",
    ]  # fmt: skip
    assert listed[-1].content[0].image_url == image
    sent = [item.to_dict(mode="json") for item in listed]
    echo = [*sent, *(each.to_dict() for each in response.output), {"role": "user", "content": "?"}]
    again = await answered(there, "A dog.", input=echo, tools=[CALCULATOR])
    assert len((await there.client.responses.input_items.list(again.id)).data) == 7


async def test_what_cannot_be_carried_is_refused_with_its_place(there: OpenAiWorld) -> None:
    import openai

    refused: list[tuple[dict[str, Any], str]] = [
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input.0.type"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input.0.content.0"),
        ({"tools": [{"type": "mcp", "server_label": "x", "server_url": "http://x"}]}, "tools.x.url"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice"),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "previous_response_id"),
        ({"truncation": "other"}, "truncation"),
        ({"stream": 0}, "stream"),
        ({"background": "true"}, "background"),
        ({"max_output_tokens": 5.0}, "max_output_tokens"),
        ({"max_tool_calls": "5"}, "max_tool_calls"),
        ({"temperature": "1"}, "temperature"),
        ({"extra_body": {"run": {"priority": True}}}, "run.priority"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": 7}}}}, "text.format.schema.type"),
    ]
    for more, param in refused:
        with pytest.raises(openai.BadRequestError) as error:
            await there.client.responses.create(**{"model": MODEL, "input": "hello", **more})
        assert error.value.param == param, error.value
