"""A version of OpenAI's client at an API, loose and strict: ``python driver.py BASE_URL``. Any version runs it, so it
uses nothing that only some of them have."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import openai

HELLO: Any = "hello"
LOOK: Any = [{"type": "function", "name": "look", "strict": False, "parameters": {"type": "object", "properties": {}}}]
SERVER: Any = {"type": "mcp", "server_label": "palaver", "allowed_tools": ["record"]}


def numbers(events: list[Any]) -> list[int]:
    return [event.sequence_number for event in events]


def refused(kind: type[openai.APIStatusError], ask: Callable[[], Any]) -> Any:
    """The error that a request is answered with."""
    found: Any = None
    try:
        ask()
    except kind as error:
        found = error
    assert found is not None, kind
    return found


def answers(client: Any) -> None:
    response = client.responses.create(model="fake/echo", input=HELLO, metadata={"a": "b"})
    assert response.status == "completed", response
    assert response.output_text
    assert response.usage.total_tokens > 0
    items = list(client.responses.input_items.list(response.id))
    assert [item.content[0].text for item in items] == [HELLO], items
    client.responses.delete(response.id)
    gone = refused(openai.NotFoundError, lambda: client.responses.retrieve(response.id))
    assert (gone.code, gone.type) == ("run_not_found", "not_found_error"), gone.body
    assert gone.request_id


def is_cancelled(client: Any) -> None:
    response = client.responses.create(model="fake/hang", input=HELLO, background=True)
    assert response.status in ("queued", "in_progress"), response.status
    for _ in range(2):
        assert client.responses.cancel(response.id).status == "cancelled"
    events = list(client.responses.retrieve(response.id, stream=True))
    assert (events[-1].type, events[-1].response.status) == ("response.incomplete", "cancelled")


def streams_and_goes_on(client: Any) -> None:
    first, response_id = [], ""
    with client.responses.create(model="fake/say-12+rate-40", input=HELLO, background=True, stream=True) as stream:
        for event in stream:
            first.append(event)
            response_id = response_id or event.response.id
            if len(first) == 7:
                break
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=first[-1].sequence_number))
    whole = list(client.responses.retrieve(response_id, stream=True))
    assert numbers([*first, *rest])[0] == 0
    assert set(numbers([*first, *rest])) <= set(numbers(whole))
    assert whole[-1].response.output_text
    with client.responses.stream(response_id=response_id, starting_after=first[-1].sequence_number) as helper:
        helped = list(helper)
    assert numbers(helped) == [number for number in numbers(whole) if number > first[-1].sequence_number]


def calls(client: Any) -> None:
    with client.responses.stream(model="fake/tool-1", input=HELLO, tools=LOOK) as helper:
        for _ in helper:
            pass
        first = helper.get_final_response()
    (call,) = [item for item in first.output if item.type == "function_call"]
    said: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "seen"}]
    second = client.responses.create(model="fake/tool-1", input=said, previous_response_id=first.id, tools=LOOK)
    assert (second.status, "seen" in second.output_text) == ("completed", True), second
    (item,) = client.responses.input_items.list(second.id)
    assert (item.type, item.output) == ("function_call_output", "seen")


def asks_for_approval(client: Any) -> None:
    tools: Any = [{**SERVER, "require_approval": "always"}]
    first = client.responses.create(model="fake/tool-1", input='[[args {"seconds": 0}]]', tools=tools)
    (request,) = [item for item in first.output if item.type == "mcp_approval_request"]
    said: Any = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]
    second = client.responses.create(model="fake/tool-1", input=said, previous_response_id=first.id)
    assert [item.type for item in second.output] == ["mcp_call", "message"], second.output


def fails_and_is_refused(client: Any) -> None:
    response = client.responses.create(model="fake/401", input=HELLO)
    assert (response.status, response.error.code) == ("failed", "server_error"), response
    unknown = refused(openai.NotFoundError, lambda: client.responses.create(model="agent/nobody", input=HELLO))
    assert unknown.code == "model_not_found", unknown.body
    search: Any = [{"type": "web_search"}]
    tool = refused(
        openai.BadRequestError, lambda: client.responses.create(model="fake/echo", input=HELLO, tools=search)
    )
    assert tool.code == "unsupported_option", tool.body


def converses(client: Any) -> None:
    made = client.conversations.create(metadata={"topic": "demo"})
    client.responses.create(model="fake/echo", input=HELLO, conversation=made.id)
    items = list(client.conversations.items.list(made.id, order="asc", limit=1))
    assert [item.role for item in items] == ["user", "assistant"], items
    client.conversations.delete(made.id)


def chats(client: Any) -> None:
    messages: Any = [{"role": "user", "content": HELLO}]
    whole = client.chat.completions.create(model="fake/echo", messages=messages)
    assert whole.choices[0].message.content
    chunks = list(client.chat.completions.create(model="fake/echo", messages=messages, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert isinstance(list(client.models.list()), list)


async def awaits(base_url: str, strict: bool) -> None:
    options: Any = {"_strict_response_validation": strict}
    async with openai.AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0, **options) as client:
        stream: Any = await client.responses.create(model="fake/echo", input=HELLO, stream=True)
        events = [event async for event in stream]
        assert events[-1].type == "response.completed"
        messages: Any = [{"role": "user", "content": HELLO}]
        chunks: Any = await client.chat.completions.create(model="fake/echo", messages=messages, stream=True)
        assert [chunk async for chunk in chunks][-1].choices[0].finish_reason == "stop"


def main() -> None:
    """Do all of it, and say with which version."""
    base_url = sys.argv[1]
    for strict in (False, True):
        options: Any = {"_strict_response_validation": strict}
        with openai.OpenAI(base_url=base_url, api_key="any", max_retries=0, timeout=60, **options) as client:
            for check in (
                answers, is_cancelled, streams_and_goes_on, calls, asks_for_approval, fails_and_is_refused, converses,
                chats,
            ):  # fmt: skip
                check(client)
        asyncio.run(awaits(base_url, strict))
    print(openai.__version__)


if __name__ == "__main__":
    main()
