"""Responses by OpenAI's own client: created in each way, retrieved, streamed again, cancelled and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from features.openai.tests.unit.openai_world import MODEL, OpenAiWorld, kinds, numbers, plain, serving_openai
from palaver.errors import ErrorClass, Failure
from palaver.schemas.models import Message
from palaver.steps.verdicts import Finish, GiveUp, RetryAfter
from palaver.vocabulary.lifecycle import StopReason
from tests.waiting import aeventually

TEXT = [
    "created", "queued", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
    "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
]  # fmt: skip


@pytest.fixture
async def there() -> AsyncIterator[OpenAiWorld]:
    async with serving_openai() as made:
        yield made


async def read(stream: Any, count: int | None = None) -> list[Any]:
    """The events of a stream; the first ones if there is a ``count``."""
    events = []
    async for event in stream:
        events.append(event)
        if len(events) == count:
            await stream.close()
            break
    return events


async def test_one_is_created_and_its_answer_waited_for(there: OpenAiWorld) -> None:
    creating = asyncio.create_task(
        there.client.responses.create(model=MODEL, input="hello", instructions="Be kind.", metadata={"a": "b"})
    )
    await there.api.finish(await there.newest(), "Hi.")
    response = await creating
    assert (response.status, response.output_text, response.model) == ("completed", "Hi.", MODEL)
    assert (response.instructions, response.background, response.error) == ("Be kind.", False, None)
    run = await there.run_of(response)
    assert response.id == run["id"].replace("run_", "resp_")
    assert response.metadata == {
        "a": "b",
        "palaver_run_id": run["id"],
        "palaver_conversation_id": run["conversation_id"],
        "palaver_stop_reason": "end_turn",
    }
    assert response.conversation.id == run["conversation_id"]
    again = await there.client.responses.retrieve(response.id)
    assert again == response
    assert response._request_id


async def test_one_in_the_background_is_retrieved_cancelled_and_deleted(there: OpenAiWorld) -> None:
    import openai

    client = there.client.responses
    response = await client.create(model=MODEL, input="hello", background=True)
    assert (response.status, response.background, response.output) == ("queued", True, [])
    lease = await there.claimed(response)
    assert (await client.retrieve(response.id)).status == "in_progress"
    with pytest.raises(openai.ConflictError) as refused:
        await client.delete(response.id)
    assert (refused.value.code, refused.value.type) == ("run_active", "conflict_error")
    cancelling = asyncio.create_task(client.cancel(response.id))

    async def asked() -> bool:
        return bool((await there.run_of(response))["status"] == "cancelling")

    await aeventually(asked)
    await there.api.store.steps.settle(lease, GiveUp(Failure.of(ErrorClass.INTERNAL), StopReason.ERROR))
    assert (await cancelling).status == "cancelled"
    ended = await client.cancel(response.id)
    assert (ended.status, ended.metadata["palaver_stop_reason"]) == ("cancelled", "cancelled")
    assert await client.delete(response.id) is None
    with pytest.raises(openai.NotFoundError) as gone:
        await client.retrieve(response.id)
    assert (gone.value.code, gone.value.type) == ("run_not_found", "not_found_error")
    assert gone.value.request_id == gone.value.response.headers["x-request-id"]


REQUIRED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "object", "status", "model", "truncation", "service_tier"), (str,)),
    **dict.fromkeys(("temperature", "top_p", "presence_penalty", "frequency_penalty"), (float, int)),
    # The client reads the time as a float.
    "created_at": (float,),
    "top_logprobs": (int,),
    **dict.fromkeys(("parallel_tool_calls", "store", "background"), (bool,)),
    **dict.fromkeys(("output", "tools"), (list,)),
    **dict.fromkeys(("text", "metadata"), (dict,)),
    **dict.fromkeys(("max_output_tokens", "max_tool_calls"), (int, type(None))),
    "completed_at": (float, type(None)),
    **dict.fromkeys(("previous_response_id", "safety_identifier", "prompt_cache_key"), (str, type(None))),
    **dict.fromkeys(("incomplete_details", "error", "usage", "reasoning"), (dict, type(None))),
    "instructions": (str, type(None)),
    "tool_choice": (str, dict),
}
"""The fields that the schema of Open Responses (2026-04-24) wants in each response, with their types."""


def has_what_is_required(response: Any) -> None:
    """Hold a response to it."""
    fields = response.to_dict()
    assert {name for name, kinds in REQUIRED.items() if not isinstance(fields.get(name, ...), kinds)} == set()


async def test_each_response_has_the_fields_that_open_responses_requires(there: OpenAiWorld) -> None:
    client = there.client.responses
    begun = await client.create(model=MODEL, input="hello", background=True, temperature=0.5, service_tier="flex")
    has_what_is_required(begun)
    assert (begun.temperature, begun.top_p, begun.service_tier) == (0.5, 1.0, "flex")
    await there.api.finish(await there.run_of(begun), "Hi.")
    for event in await read(await client.retrieve(begun.id, stream=True)):
        if hasattr(event, "response"):
            has_what_is_required(event.response)
    has_what_is_required(await client.retrieve(begun.id))
    for end in ("cancelled", "failed"):
        made = await client.create(model=MODEL, input="hello", background=True)
        assert (made.service_tier, made.reasoning.summary) == ("default", "auto")
        if end == "failed":
            await there.api.fail(await there.run_of(made))
            has_what_is_required(await client.retrieve(made.id))
        else:
            has_what_is_required(await client.cancel(made.id))


@pytest.mark.slow
async def test_a_stream_is_the_same_however_often_and_from_wherever_it_is_read(there: OpenAiWorld) -> None:
    client = there.client.responses
    stream = await client.create(model=MODEL, input="hello", background=True, stream=True)
    first = await read(stream, 2)
    response = first[0].response
    lease = await there.claimed(response)
    await there.api.say(lease, "Hel", "lo.")
    await there.api.finish(await there.run_of(response), "Hello.", lease=lease)
    whole = await read(await client.retrieve(response.id, stream=True))
    assert kinds(whole) == TEXT
    assert plain(whole[:2]) == plain(first)
    assert numbers(whole) == sorted(set(numbers(whole)))
    assert numbers(whole)[0] == 0
    assert [event.delta for event in whole if event.type.endswith("delta")] == ["Hel", "lo."]
    assert whole[-1].response == await client.retrieve(response.id)
    for place, event in enumerate(whole):
        rest = await read(await client.retrieve(response.id, stream=True, starting_after=event.sequence_number))
        assert plain(rest) == plain(whole[place + 1 :]), place
    async with client.stream(response_id=response.id, starting_after=whole[4].sequence_number) as helper:
        helped = [event async for event in helper]
    assert numbers(helped) == numbers(whole[5:])
    assert (await read(await client.retrieve(response.id, stream=True, starting_after=0)))[0].type.endswith("queued")


async def test_a_stream_goes_on_live_behind_any_event(there: OpenAiWorld) -> None:
    client = there.client.responses
    response = await client.create(model=MODEL, input="hello", background=True)
    lease = await there.claimed(response)
    await there.api.say(lease, "one ", "two ")
    seen = await read(await client.retrieve(response.id, stream=True), 6)
    assert seen[-1].delta == "one "
    stream = await client.retrieve(response.id, stream=True, starting_after=seen[-1].sequence_number)
    following = asyncio.create_task(read(stream))
    for word in ("three ", "four"):
        await there.api.say(lease, word)
    await there.api.finish(await there.run_of(response), "one two three four", lease=lease)
    rest = await following
    assert "".join(event.delta for event in rest if event.type.endswith("delta")) == "two three four"
    assert rest[-1].response.output_text == "one two three four"


@pytest.mark.slow
async def test_an_attempt_that_failed_stays_as_an_item_that_is_incomplete(there: OpenAiWorld) -> None:
    client = there.client.responses
    response = await client.create(model=MODEL, input="hello", background=True)
    lease = await there.claimed(response)
    await there.api.say(lease, "Half")
    failure = Failure.of(ErrorClass.PROVIDER_ERROR)
    await there.api.store.steps.settle(lease, RetryAfter(0.0, failure))
    run = await there.run_of(response)
    again = await there.api.claim(run)
    await there.api.say(again, "Who", "le")
    await there.api.finish(run, "Whole", lease=again)
    async with client.stream(response_id=response.id) as helper:
        events = [event async for event in helper]
    items = [event.item for event in events if event.type == "response.output_item.done"]
    assert [(item.status, item.content[0].text) for item in items] == [("incomplete", "Half"), ("completed", "Whole")]
    assert len({item.id for item in items}) == 2
    final = events[-1].response
    assert [item.id for item in final.output] == [items[1].id]
    assert final.output_text == "Whole"


@pytest.mark.slow
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "loose"])
async def test_each_end_has_one_last_event(strict: bool) -> None:
    async with serving_openai(strict=strict) as there:
        client = there.client.responses

        async def ended(end: Any) -> Any:
            response = await client.create(model=MODEL, input="hello", background=True)
            await end(response)
            async with client.stream(response_id=response.id) as helper:
                events = [event async for event in helper]
            assert events[-1].response == await client.retrieve(response.id)
            return events[-1]

        async def fail(response: Any) -> None:
            await there.api.fail(await there.run_of(response), ErrorClass.RATE_LIMITED)

        async def stop(response: Any) -> None:
            lease = await there.claimed(response)
            verdict = Finish(Message(role="assistant", content="Cut", partial=True), StopReason.MAX_TOKENS)
            await there.api.store.steps.settle(lease, verdict)

        async def cancel(response: Any) -> None:
            await client.cancel(response.id)

        failed, cut, cancelled = [await ended(end) for end in (fail, stop, cancel)]
        assert (failed.type, failed.response.status) == ("response.failed", "failed")
        assert (failed.response.error.code, failed.response.error.type) == ("rate_limit_exceeded", "rate_limited")
        assert (cut.type, cut.response.incomplete_details.reason) == ("response.incomplete", "max_output_tokens")
        assert [item.status for item in cut.response.output] == ["incomplete"]
        assert (cancelled.type, cancelled.response.status) == ("response.incomplete", "cancelled")


async def test_what_is_unknown_is_refused_in_the_envelope(there: OpenAiWorld) -> None:
    import openai

    client = there.client.responses
    for model in ("agent/nobody", "nobody", "nobody/at-all"):
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.create(model=model, input="hello")
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    for response_id in ("resp_00" + "0" * 26, "resp_nothing", "run_00" + "0" * 26):
        with pytest.raises(openai.NotFoundError) as absent:
            await client.retrieve(response_id)
        assert absent.value.code == "run_not_found"
    response = await client.create(model=MODEL, input="hello", background=True)
    with pytest.raises(openai.BadRequestError) as far:
        await client.retrieve(response.id, stream=True, starting_after=999_999)
    assert far.value.code == "invalid_cursor"
    with pytest.raises(openai.NotFoundError):
        await client.retrieve(f"{response.id}_1")
    with pytest.raises(openai.BadRequestError) as wrong:
        await client.create(model=MODEL, input="hello", temperature=7)
    assert wrong.value.param == "temperature"
    for path, status, code in (
        ("/responses/compact", 404, "not_found"),
        ("/responses/input_tokens", 404, "not_found"),
        ("/embeddings", 404, "not_found"),
        (f"/responses/{response.id}", 405, "method_not_allowed"),
    ):
        with pytest.raises(openai.APIStatusError) as elsewhere:
            await there.client.post(path, body={"model": MODEL}, cast_to=object)
        assert (elsewhere.value.status_code, elsewhere.value.code) == (status, code), path
        named = f"/openai/v1{path} is not served"
        assert (named in str(elsewhere.value.message)) == (status == 404), elsewhere.value.message


@pytest.mark.slow
async def test_a_request_that_comes_again_finds_what_it_made(there: OpenAiWorld) -> None:
    import openai

    client = there.client.responses

    async def create(count: int | None = None, **more: Any) -> str:
        headers = {} if count is None else {"x-stainless-retry-count": str(count)}
        said = {"model": MODEL, "input": "hello", "background": True, **more}
        response: Any = await client.create(**said, extra_headers=headers)
        return str(response.id)

    lost = await create(0)
    assert await create(1) == await create(2) == lost
    meant = await create(0)
    assert meant != lost
    assert await create(1, input="other") not in (lost, meant)
    behind = await create(0, previous_response_id=lost)
    assert await create(1, previous_response_id=lost) == behind
    ended = await client.create(model=MODEL, input="once", background=True)
    await there.api.finish(await there.run_of(ended))
    once = await client.retrieve(await create(0, previous_response_id=ended.id))
    await there.api.finish(await there.run_of(once))
    twice = await client.retrieve(await create(0, previous_response_id=ended.id))
    assert twice.conversation.id != once.conversation.id == ended.conversation.id
    ended = await client.create(model=MODEL, input="gone", background=True)
    await there.api.finish(await there.run_of(ended))
    await client.delete(ended.id)
    assert await create(0, input="gone") != ended.id
    first, again = [await client.create(model=MODEL, input="x", extra_headers={"idempotency-key": "k"}, background=True)
                    for _ in range(2)]  # fmt: skip
    assert first.id == again.id
    with pytest.raises(openai.BadRequestError) as reused:
        await client.create(model=MODEL, input="y", extra_headers={"idempotency-key": "k"}, background=True)
    assert reused.value.code == "idempotency_key_reused"


@pytest.mark.slow
async def test_a_key_finds_the_response_that_goes_on_with_another_one(there: OpenAiWorld) -> None:
    import openai

    client = there.client.responses
    count = 0

    async def create(**more: Any) -> Any:
        said = {"model": MODEL, "input": "and?", "background": True, **more}
        return await client.create(**said, extra_headers={"idempotency-key": key})

    for ended in (True, False):
        first = await client.create(model=MODEL, input="hello", background=True)
        if ended:
            await there.api.finish(await there.run_of(first))
        for about in ({"previous_response_id": first.id}, {"conversation": first.conversation.id}):
            if not ended and "conversation" in about:
                continue
            count += 1
            key = f"key-{count}"
            behind = await create(**about)
            again = await create(**about)
            assert (again.id, again.conversation.id) == (behind.id, first.conversation.id), (ended, about)
            assert "openai.request" not in again.metadata
            with pytest.raises(openai.BadRequestError) as reused:
                await create(**about, input="or?")
            assert reused.value.code == "idempotency_key_reused"
            if ended:
                await there.api.finish(await there.run_of(behind))
                assert (await create(**about)).id == behind.id
    key = "key-fork"
    older = await client.create(model=MODEL, input="hello", background=True)
    await there.api.finish(await there.run_of(older))
    newer = await client.create(model=MODEL, input="and?", previous_response_id=older.id, background=True)
    await there.api.finish(await there.run_of(newer))
    copy = await create(previous_response_id=older.id)
    assert copy.conversation.id != older.conversation.id
    await there.api.finish(await there.run_of(copy))
    assert (await create(previous_response_id=older.id)).id == copy.id
