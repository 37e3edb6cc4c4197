"""Chat completions by OpenAI's own client: whole and streamed, with calls, and what becomes of those left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from features.openai.chat_stream import ChatText
from features.openai.tests.unit.openai_world import AT, MODEL, WEATHER, OpenAiWorld, serving_openai
from palaver.errors import ErrorClass
from palaver.events import EventKind, complete
from palaver.schemas.models import AgentSpec
from palaver.store.reading.events import StoredEvent
from tests.unit.api_world import call
from tests.waiting import aeventually

HELLO: Any = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
TOOLS: Any = [{"type": "function", "function": {name: WEATHER[name] for name in ("name", "parameters")}}]


@pytest.fixture
async def there() -> AsyncIterator[OpenAiWorld]:
    async with serving_openai() as made:
        yield made


async def test_a_completion_is_a_run(there: OpenAiWorld) -> None:
    creating = asyncio.create_task(
        there.client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=9)
    )
    run = await there.newest()
    assert (run["agent"]["instructions"], run["agent"]["max_output_tokens"]) == ("Be kind.", 9)
    await there.api.finish(run, "Hi.")
    raw = await creating
    completion = raw.parse()
    assert raw.headers["x-run-id"] == run["id"]
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason, completion.model) == ("Hi.", "stop", MODEL)


async def test_a_stream_has_the_text_the_end_and_the_usage(there: OpenAiWorld) -> None:
    stream = await there.client.chat.completions.create(
        model=MODEL, messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    run = await there.newest()
    lease = await there.api.claim(run)
    await there.api.say(lease, "Hel", "lo.")
    await there.api.finish(run, "Hello.", lease=lease)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert (chunks[-1].choices, chunks[-1].usage is not None) == ([], True)


async def test_a_stream_does_not_repeat_what_the_client_has_sent(there: OpenAiWorld) -> None:
    before: Any = [{"role": "user", "content": "How are you?"}, {"role": "assistant", "content": "Well."}, HELLO[-1]]
    stream = await there.client.chat.completions.create(model=MODEL, messages=before, stream=True)
    run = await there.newest()
    await there.api.finish(run, "Hello.")
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]) == "Hello."


@pytest.mark.parametrize("streams", [False, True])
async def test_a_call_of_the_clients_tool_ends_it_and_the_next_one_goes_on(there: OpenAiWorld, streams: bool) -> None:
    async def calls() -> Any:
        made = await there.client.chat.completions.create(model=MODEL, messages=HELLO, tools=TOOLS, stream=streams)
        if not streams:
            assert made.choices[0].finish_reason == "tool_calls"
            return made.choices[0].message.tool_calls
        chunks = [chunk async for chunk in made]
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        return [each for chunk in chunks for each in chunk.choices[0].delta.tool_calls or ()]

    creating = asyncio.create_task(calls())
    run = await there.newest()
    await there.api.ask(run, call("call_1", "client_tool", "weather"))
    (made,) = await creating
    assert (made.id, made.function.name) == ("call_1", "weather")
    ended = await there.api.read(run)
    assert (ended["status"], ended["stop_reason"], ended["cancel"]) == ("completed", "end_turn", None)
    page = (await there.api.client.get(f"/v1/conversations/{run['conversation_id']}/messages")).json()["data"]
    assert page[-1]["content"].startswith("The client took this call over")
    asked = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages: Any = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    answering = asyncio.create_task(there.client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS))
    after = await there.newest()
    await there.api.finish(after, "Sunny.")
    assert (await answering).choices[0].message.content == "Sunny."
    page = (await there.api.client.get(f"/v1/conversations/{after['conversation_id']}/messages")).json()["data"]
    assert [message["role"] for message in page] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("streams", [False, True])
async def test_one_that_comes_again_with_its_key_has_the_same_calls(there: OpenAiWorld, streams: bool) -> None:
    async def calls() -> Any:
        made = await there.client.chat.completions.create(
            model=MODEL, messages=HELLO, tools=TOOLS, stream=streams, extra_headers={"Idempotency-Key": "k"}
        )
        if not streams:
            (choice,) = made.choices
            return choice.finish_reason, choice.message.content, [each.id for each in choice.message.tool_calls]
        deltas = [chunk.choices[0] async for chunk in made]
        text = "".join(each.delta.content or "" for each in deltas)
        found = [call.id for each in deltas for call in each.delta.tool_calls or ()]
        return deltas[-1].finish_reason, text, found

    creating = asyncio.create_task(calls())
    run = await there.newest()
    opened = [call(name, "client_tool", "weather") for name in ("call_1", "call_2")]
    await there.api.ask(run, *opened)
    first = await creating
    assert first == ("tool_calls", "" if streams else None, ["call_1", "call_2"])
    assert await calls() == first
    assert len((await there.api.client.get("/v1/runs")).json()["data"]) == 1


async def test_calls_that_the_client_takes_are_no_cancels_in_counts(there: OpenAiWorld) -> None:
    creating = asyncio.create_task(there.client.chat.completions.create(model=MODEL, messages=HELLO, tools=TOOLS))
    await there.api.ask(await there.newest(), call("call_1", "client_tool", "weather"))
    await creating
    runs = (await there.api.client.get("/v1/statistics")).json()["total"]["runs"]
    assert (runs["completed"], runs["cancelled"]) == (1, 0)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("choice", "status"), [("cancel", "cancelled"), ("continue", "queued")])
async def test_one_whose_client_goes_is_cancelled_unless_it_is_to_go_on(
    streams: bool, choice: str, status: str
) -> None:
    async with serving_openai() as there:
        asking = there.client.chat.completions.create(
            model=MODEL, messages=HELLO, stream=streams, extra_body={"run": {"on_disconnect": choice}}
        )
        if streams:
            await (await asking).close()
        else:
            task = asyncio.create_task(asking)
            await there.newest()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await aeventually(lambda: not there.connections)

        async def has_it() -> bool:
            """The API cancels what its client left behind that client's connection."""
            (run,) = (await there.api.client.get("/v1/runs")).json()["data"]
            return bool(run["status"] == status)

        await aeventually(has_it)


async def test_what_failed_is_an_error_that_is_not_tried_again(there: OpenAiWorld) -> None:
    import openai

    async def failing(streams: bool) -> Any:
        made = await there.client.chat.completions.create(model=MODEL, messages=HELLO, stream=streams)
        return [chunk async for chunk in made]

    for streams in (False, True):
        creating = asyncio.create_task(failing(streams))
        await there.api.fail(await there.newest(), ErrorClass.RATE_LIMITED)
        with pytest.raises(openai.APIError) as refused:
            await creating
        assert refused.value.code == "rate_limited"
        assert streams or isinstance(refused.value, openai.RateLimitError)


async def test_what_cannot_be_carried_is_refused(there: OpenAiWorld) -> None:
    import openai

    refused: list[tuple[dict[str, Any], str]] = [
        ({"n": 2}, "n"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages.0.content.0"),
        ({"messages": [*HELLO, {"role": "system", "content": "late"}]}, "messages.2.role"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"messages": [*HELLO, {"role": "tool", "tool_call_id": "c", "content": "x"}]}, "messages"),
    ]
    for more, param in refused:
        with pytest.raises(openai.BadRequestError) as error:
            await there.client.chat.completions.create(**{"model": MODEL, "messages": HELLO, **more})
        assert error.value.param == param


async def test_models_are_agents_and_those_of_providers(there: OpenAiWorld) -> None:
    await there.api.store.agents.keep("", "support", AgentSpec(model=MODEL))
    assert [model.id async for model in there.client.models.list()] == ["agent/support"]
    creating = asyncio.create_task(there.client.chat.completions.create(model="agent/support", messages=HELLO[1:]))
    run = await there.newest()
    assert (run["agent"]["name"], run["agent"]["version"]) == ("support", 1)
    await there.api.finish(run)
    assert (await creating).model == "agent/support"
    changing = asyncio.create_task(there.client.chat.completions.create(model="support", messages=HELLO))
    run = await there.newest()
    assert (run["agent"]["version"], run["agent"]["instructions"]) == (None, "Be kind.")
    await there.api.finish(run)
    await changing


async def test_each_model_of_the_list_is_retrieved_by_its_id(there: OpenAiWorld) -> None:
    import openai

    await there.api.store.agents.keep("", "support", AgentSpec(model=MODEL))
    listed = [model async for model in there.client.models.list()]
    for model in listed:
        assert await there.client.models.retrieve(model.id) == model
    for nameable, owner in (("support", "palaver"), ("agent/support@1", "palaver"), (MODEL, "fake")):
        model = await there.client.models.retrieve(nameable)
        assert (model.id, model.object, model.owned_by) == (nameable, "model", owner)
    # Of some providers names have slashes of their own, which older clients do not escape.
    assert (await there.api.client.get("/openai/v1/models/fake/meta/llama")).json()["id"] == "fake/meta/llama"
    unknown = "agent/missing", "no-provider/no-model", "agent/a/b", "agent/support@7", "fake/", "fake/a b", "%00", "/"
    for none in unknown:
        with pytest.raises(openai.NotFoundError) as absent:
            await there.client.models.retrieve(none)
        assert absent.value.code == "model_not_found", none


def test_text_that_was_shown_is_not_shown_again() -> None:
    def said(*events: tuple[str, int, str]) -> list[str]:
        text = ChatText(bytes)
        told = []
        for seq, (step, attempt, words) in enumerate(events):
            data = {"step": step, "attempt": attempt, "text": words}
            event = StoredEvent("run", seq, AT, EventKind.MESSAGE_DELTA, orjson.dumps(data))
            at_once = text.at_once(event)
            told.append(text.add(event))
            assert at_once in (None, orjson.dumps(told[-1]))
            assert at_once is None or (step, attempt) == events[seq - 1][:2]
        return told

    assert said(("1", 1, "one "), ("1", 1, "two"), ("2", 1, "three")) == ["one ", "two", "\n\nthree"]
    assert said(("1", 1, "one "), ("1", 2, "two"), ("1", 2, " three")) == ["one ", "\n\ntwo", " three"]
    assert said(("1", 1, "one two"), ("1", 2, "one"), ("1", 2, " two th"), ("1", 2, "ree")) == [
        "one two", "", " th", "ree",
    ]  # fmt: skip
    assert said(("1", 1, "one two"), ("1", 2, "o"), ("1", 2, "ther"), ("1", 3, "other")) == [
        "one two", "", "\n\nother", "",
    ]  # fmt: skip
    assert said(("1", 1, "one two"), ("1", 2, "one"), ("1", 3, "one two three")) == ["one two", "", " three"]


def test_a_delta_that_only_goes_on_is_said_at_once() -> None:
    deltas = [StoredEvent("run", 1, AT, EventKind.MESSAGE_DELTA, orjson.dumps({"step": "1", "attempt": a, "text": t}))
              for a, t in ((1, "one "), (1, "two"), (2, "one "), (2, "two"), (2, " three"), (2, " four"))]  # fmt: skip
    text, said = ChatText(bytes), list[bytes | None]()
    for event in deltas:
        said.append(at_once := text.at_once(event))
        if at_once is None:
            text.add(event)
        else:
            text.passed()
    assert said == [None, b'"two"', None, None, None, b'" four"']


def test_a_whole_message_brings_what_its_deltas_left_out() -> None:
    def said(deltas: list[tuple[int, str]], whole: str) -> str:
        text = ChatText(bytes)
        events: list[tuple[str, dict[str, Any]]] = [
            (EventKind.MESSAGE_DELTA, {"step": "1", "attempt": attempt, "text": words}) for attempt, words in deltas
        ]
        message = {"role": "assistant", "content": whole}
        events.append((EventKind.MESSAGE_CREATED, {"step": "1", "message": message}))
        made = (
            StoredEvent("run", seq, AT, kind, orjson.dumps(complete(kind, data)))
            for seq, (kind, data) in enumerate(events)
        )
        return "".join(text.add(event) for event in made)

    cases: list[tuple[list[tuple[int, str]], str, str]] = [
        ([], "one two", "one two"),
        ([(1, "one two")], "one two", "one two"),
        ([(1, "one ")], "one two", "one two"),
        ([(1, "one "), (1, "three")], "one two three", "one three\n\none two three"),
        ([(1, "one two"), (2, "one")], "one two", "one two"),
        ([(1, "one two"), (2, "one")], "one two three", "one two three"),
        ([(1, "one two"), (2, "one"), (3, "on")], "other", "one two\n\nother"),
        ([(1, "one two"), (2, "one two three")], "one two three four", "one two three four"),
    ]
    for deltas, whole, shown in cases:
        assert said(deltas, whole) == shown, (deltas, whole)
