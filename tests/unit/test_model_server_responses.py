"""The model server's Responses, read by OpenAI's own client, and as strict as the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.model_server import ModelServer
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    import openai

ADD = {"type": "function", "name": "add", "strict": False, "parameters": {
    "type": "object", "properties": {"x": {"type": "integer"}}}}  # fmt: skip
MODEL = "parallel-2+reasoning+args-split-3"
HI = {"role": "user", "content": "2+2?"}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer.running() as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ModelServer) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as made:
        yield made


def asked(**more: Any) -> dict[str, Any]:
    include = ["reasoning.encrypted_content"]
    return {"model": MODEL, "input": [HI], "tools": [ADD], "store": False, "include": include, **more}


def answered(output: list[Any]) -> list[dict[str, Any]]:
    # What is parsed is the client's own.
    items = [{k: v for k, v in item.to_dict().items() if k != "parsed_arguments"} for item in output]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    return [*items, *({"type": "function_call_output", "call_id": each, "output": "4"} for each in calls)]


def streamed(client: openai.OpenAI, **more: Any) -> Any:
    with client.responses.stream(**asked(**more)) as stream:
        return stream.get_final_response()


@pytest.mark.parametrize("stream", [True, False])
def test_the_real_client_reads_a_thinking_turn_with_two_calls_and_its_answer(
    client: openai.OpenAI, stream: bool
) -> None:
    def ask(**more: Any) -> Any:
        return streamed(client, **more) if stream else client.responses.create(**asked(**more))

    first = ask()
    assert [item.type for item in first.output] == ["reasoning", "function_call", "function_call"]
    assert [item.arguments for item in first.output[1:]] == ['{"x":1}', '{"x":2}']
    assert first.output[0].encrypted_content
    assert first.usage.output_tokens_details.reasoning_tokens == 8
    last = ask(input=[HI, *answered(first.output)])
    assert last.output_text == "done: 2 tool results, the last one: 4"
    assert last.status == "completed"


@pytest.mark.parametrize("model", ["echo", "say-5+chunk-2", "tool-1+args-split", "say-3+reasoning-2", "filter"])
def test_a_stream_says_what_a_document_does(client: openai.OpenAI, model: str) -> None:
    with client.responses.create(**asked(model=model), stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == [*range(len(events))]
    whole = client.responses.create(**asked(model=model)).to_dict()
    assert events[-1].response.to_dict() == whole
    assert whole["status"] == ("incomplete" if model == "filter" else "completed")


def spoilt(spoil: Callable[[list[Any]], Any], client: openai.OpenAI, **more: Any) -> openai.BadRequestError:
    import openai

    items = [HI, *answered(client.responses.create(**asked(**more)).output)]
    spoil(items)
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(**asked(input=items, **more))
    return raised.value


SPOILT: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "lost reasoning": (lambda items: items.pop(1), "without its required 'reasoning' item"),
    "another encryption": (lambda items: items[1].update(encrypted_content="gAAAA"), "could not be verified"),
    "another summary": (lambda items: items[1].update(summary=[]), "could not be verified"),
    "another id": (lambda items: items[1].update(id="rs_x"), "could not be verified"),
    "another order": (lambda items: items.insert(3, items.pop(1)), "without its required"),
    "reasoning without its calls": (lambda items: items.__delitem__(slice(2, None)), "without its required following"),
    "a lacking output": (lambda items: items.pop(), "No tool output found"),
    "an output too many": (lambda items: items.append(items[-1]), "No tool call found"),
    "an output of nothing": (lambda items: items[-1].update(call_id="call_x"), "No tool call found"),
    "a call twice": (lambda items: items.append(deepcopy(items[2])), "Duplicate call id"),
    "an unknown field": (lambda items: items[2].update(extra=1), "Unknown parameter"),
    "an unknown item": (lambda items: items.append({"type": "item"}), "Invalid value"),
    "an id that is too long": (lambda items: items[2].update(call_id="c" * 65), "at most 64"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_does_not_come_back_as_it_was_is_refused(client: openai.OpenAI, name: str) -> None:
    spoil, says = SPOILT[name]
    assert says in spoilt(spoil, client).message


def test_reasoning_that_got_stale_is_refused_and_not_wanted(client: openai.OpenAI) -> None:
    more = {"model": "steps-1-1+reasoning+stale-2"}
    refused = spoilt(lambda items: None, client, **more)
    assert refused.code == "invalid_encrypted_content"
    first = [HI, *answered(client.responses.create(**asked(**more)).output)[1:]]
    second = client.responses.create(**asked(input=first, **more)).output
    assert [item.type for item in second] == ["reasoning", "function_call"]
    last = client.responses.create(**asked(input=[*first, *answered(second)], **more))
    assert last.output_text.startswith("done: 2")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"store": True}, "store"),
        ({"include": []}, "store"),
        ({"seed": 1}, "seed"),
        ({"stop": ["x"]}, "stop"),
        ({"messages": []}, "messages"),
        ({"max_output_tokens": 15}, ">= 16"),
        ({"reasoning": {"effort": "huge"}}, "Invalid value"),
        ({"tools": [{"type": "function", "function": {"name": "add"}}]}, "function"),
        ({"tool_choice": {"type": "function", "name": "other"}}, "not found"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"input": []}, "input"),
    ],
)
def test_fields_that_are_not_as_they_have_to_be(server: ModelServer, change: dict[str, Any], says: str) -> None:
    answer = httpx.post(f"{server.base_url}/responses", json=asked(**change), timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert says in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("model", "error", "code"),
    [
        ("echo+400", "BadRequestError", None),
        ("echo+401", "AuthenticationError", "invalid_api_key"),
        ("echo+429", "RateLimitError", "rate_limit_exceeded"),
        ("echo+quota", "RateLimitError", "insufficient_quota"),
        ("echo+503", "InternalServerError", None),
        ("no-such-model", "NotFoundError", "model_not_found"),
    ],
)
def test_the_real_client_tells_the_errors_apart(
    client: openai.OpenAI, model: str, error: str, code: str | None
) -> None:
    import openai

    with (
        pytest.raises(getattr(openai, error)) as raised,
        client.responses.create(**asked(model=model), stream=True) as stream,
    ):
        list(stream)
    assert raised.value.code == code


@pytest.mark.parametrize(("model", "code"), [("errorchunk", "server_error"), ("overloaded", "rate_limit_exceeded")])
def test_an_error_after_the_200_is_an_event_to_it(client: openai.OpenAI, model: str, code: str) -> None:
    with client.responses.create(**asked(model=f"echo+{model}"), stream=True) as stream:
        *_, last = stream
    assert (last.type, last.code) == ("error", code)
