"""The model server's other API, read by Anthropic's own client, and as strict as the real one.

That client takes a second to import: whoever collects the tests and runs others does not wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.model_server import ModelServer
from tests.unit.test_model_server import ledger_of
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    import anthropic

ADD = {
    "name": "add",
    "description": "Add.",
    "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}},
}
MODEL = "parallel-2+reasoning+args-split-3"
HEADERS = {"anthropic-version": "2023-06-01"}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer.running() as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ModelServer) -> Iterator[anthropic.Anthropic]:
    import anthropic

    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as made:
        yield made


def asked(**more: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "max_tokens": 1000,
        "tools": [ADD],
        "messages": [{"role": "user", "content": "2+2?"}],
        **more,
    }


def answered(content: list[Any]) -> list[dict[str, Any]]:
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "4"}
        for block in content
        if block["type"] == "tool_use"
    ]
    return [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


@pytest.mark.parametrize("streamed", [True, False])
def test_the_real_client_reads_a_thinking_turn_with_two_calls_and_its_answer(
    client: anthropic.Anthropic, streamed: bool
) -> None:
    def ask(**more: Any) -> anthropic.types.Message:
        if not streamed:
            made: anthropic.types.Message = client.messages.create(**asked(**more))
            return made
        with client.messages.stream(**asked(**more)) as stream:
            return stream.get_final_message()

    first = ask()
    assert [block.type for block in first.content] == ["thinking", "redacted_thinking", "tool_use", "tool_use"]
    assert (first.stop_reason, first.usage.output_tokens_details is not None) == ("tool_use", True)
    assert [block.input for block in first.content if block.type == "tool_use"] == [{"x": 1}, {"x": 2}]
    content = [block.model_dump(exclude_none=True) for block in first.content]
    last = ask(messages=[*asked()["messages"], *answered(content)])
    assert [block.type for block in last.content] == ["thinking", "redacted_thinking", "text"]
    assert last.content[2].text == "done: 2 tool results, the last one: 4"  # type: ignore[union-attr]
    assert last.stop_reason == "end_turn"


STOPS = {"say-500+room-300": "model_context_window_exceeded", "say-5+pause": "pause_turn", "pause-*-0": "pause_turn"}


@pytest.mark.parametrize("model", STOPS)
def test_ends_that_no_other_api_has(client: anthropic.Anthropic, model: str) -> None:
    found = client.messages.create(**asked(model=model, tools=[]))
    assert (found.stop_reason, found.content[-1].type == "server_tool_use") == (STOPS[model], "pause" in model)


def test_a_pause_ends_when_its_search_has_come_back_as_it_was(client: anthropic.Anthropic) -> None:
    import anthropic

    def ask(content: list[dict[str, Any]]) -> anthropic.types.Message:
        messages = [*asked()["messages"], {"role": "assistant", "content": content}]
        made: anthropic.types.Message = client.messages.create(**asked(model="pause-2-1", tools=[], messages=messages))
        return made

    first = client.messages.create(**asked(model="pause-2-1", tools=[]))
    content = [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in first.content]
    second = ask(content)
    more = [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in second.content]
    assert second.stop_reason == "pause_turn"
    assert ask([*content, *more]).stop_reason == "end_turn"
    content[-1]["input"] = {"query": "something else"}
    with pytest.raises(anthropic.BadRequestError, match="as they were"):
        ask(content)


@pytest.mark.parametrize("model", ["echo", "say-5+chunk-2", "tool-1+args-split", "say-3+reasoning-2", "filter", *STOPS])
def test_a_stream_says_what_a_document_does(client: anthropic.Anthropic, model: str) -> None:
    with client.messages.stream(**asked(model=model)) as stream:
        streamed = stream.get_final_message()
    assert streamed.to_dict() == client.messages.create(**asked(model=model)).to_dict()


def thinking_turn(client: anthropic.Anthropic) -> list[dict[str, Any]]:
    first = client.messages.create(**asked()).model_dump(exclude_none=True)
    return [*asked()["messages"], *answered(first["content"])]


def _without(index: int) -> Any:
    return lambda messages: messages[1]["content"].pop(index)


def _swapped(messages: list[Any]) -> None:
    content = messages[1]["content"]
    content[0], content[1] = content[1], content[0]


TEXT = {"type": "text", "text": "x"}
SPOILT: dict[str, tuple[Any, str]] = {
    "a lost thought": (lambda m: m[1].update(content=m[1]["content"][2:]), "Expected `thinking`"),
    "a lost hidden one": (_without(1), "cannot be modified"),
    "another text": (lambda m: m[1]["content"][0].update(thinking="no"), "Invalid `signature`"),
    "another signature": (lambda m: m[1]["content"][0].update(signature="bm8="), "Invalid `signature`"),
    "another order": (_swapped, "cannot be modified"),
    "a lacking result": (lambda m: m[2]["content"].pop(), "without `tool_result`"),
    "a result too many": (lambda m: m[2]["content"].append(m[2]["content"][0]), "single result"),
    "results that are not first": (lambda m: m[2]["content"].insert(0, TEXT), "must come before"),
    "a result of nothing": (lambda m: m[2]["content"][0].update(tool_use_id="toolu_x"), "without `tool_result`"),
    "an id twice": (lambda m: m.extend([deepcopy(m[1]), deepcopy(m[2])]), "must be unique"),
    "roles that do not alternate": (lambda m: m.append(m[0]), "roles must alternate"),
    "an assistant's beginning": (lambda m: m.pop(0), "first message must use"),
    "an assistant's end": (lambda m: m.append({"role": "assistant", "content": "So"}), "prefill"),
    "an empty text": (lambda m: m[2]["content"].append({"type": "text", "text": " "}), "non-whitespace"),
    "an unknown block": (lambda m: m[2]["content"].append({"type": "audio"}), "Input tag"),
    "an unknown field": (lambda m: m[2]["content"][0].update(name="add"), "Extra inputs"),
    "a silent failure": (lambda m: m[2]["content"][0].update(content="", is_error=True), "cannot be empty"),
    "a breakpoint on a failure": (
        lambda m: m[2]["content"][0].update(is_error=True, cache_control={"type": "ephemeral"}), "failed tool results",
    ),
    "a breakpoint on a thought": (
        lambda m: m[1]["content"][0].update(cache_control={"type": "ephemeral"}), "Extra inputs",
    ),
}  # fmt: skip


def test_what_comes_back_as_it_was_is_taken(client: anthropic.Anthropic) -> None:
    messages = thinking_turn(client)
    assert client.messages.create(**asked(messages=messages)).stop_reason == "end_turn"
    # Another model does not want it, and a turn of another provider has none.
    plain = deepcopy(messages)
    plain[1]["content"] = plain[1]["content"][2:]
    assert client.messages.create(**asked(messages=plain, model="echo")).stop_reason == "end_turn"


@pytest.mark.parametrize("name", SPOILT)
def test_what_does_not_is_refused(client: anthropic.Anthropic, name: str) -> None:
    import anthropic

    spoil, says = SPOILT[name]
    messages = thinking_turn(client)
    spoil(messages)
    with pytest.raises(anthropic.BadRequestError, match=says) as raised:
        client.messages.create(**asked(messages=messages))
    assert raised.value.request_id
    assert raised.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"seed": 1}, "seed: Extra inputs are not permitted"),
        ({"temperature": 1.5}, "temperature"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5000}}, "thinking: Input tag"),
        ({"thinking": {"type": "adaptive"}, "tool_choice": {"type": "any"}}, "forces tool use"),
        ({"thinking": {"type": "adaptive"}, "temperature": 0.5}, "temperature"),
        ({"thinking": {"type": "adaptive"}, "top_p": 0.9}, "top_p"),
        ({"thinking": {"type": "adaptive"}, "top_k": 5}, "top_k"),
        ({"tools": [], "tool_choice": {"type": "auto"}}, "while providing tools"),
        ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "String should match"),
        ({"tools": [{"name": "a", "input_schema": {}}]}, "input_schema.type"),
        ({"tools": [ADD, ADD]}, "unique"),
        ({"messages": []}, "at least one message"),
    ],
)
def test_fields_that_are_not_as_they_have_to_be(server: ModelServer, change: dict[str, Any], says: str) -> None:
    body = {name: value for name, value in asked(**change).items() if value is not None}
    answer = httpx.post(f"{server.base_url}/messages", json=body, headers=HEADERS, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert says in answer.json()["error"]["message"]
    assert httpx.post(f"{server.base_url}/messages", json=asked(), timeout=PATIENCE).status_code == 400  # no version


def test_a_fifth_breakpoint_is_refused(server: ModelServer) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    texts = [{"type": "text", "text": "x", **mark} for _ in range(3)]
    for count, status in ((3, 200), (4, 200), (5, 400)):
        others = {"tools": [ADD | mark]} | ({"system": [texts[0]]} if count > 3 else {})
        content = texts[: 2 if count < 5 else 3]
        answer = httpx.post(
            f"{server.base_url}/messages",
            json=asked(messages=[{"role": "user", "content": content}], **others),
            headers=HEADERS,
            timeout=PATIENCE,
        )
        assert answer.status_code == status, answer.text
    usage = httpx.post(
        f"{server.base_url}/messages",
        json=asked(messages=[{"role": "user", "content": texts}]),
        headers=HEADERS,
        timeout=PATIENCE,
    ).json()["usage"]
    assert usage["cache_read_input_tokens"] > usage["cache_creation_input_tokens"] > 0


@pytest.mark.parametrize(
    ("model", "error", "kind"),
    [
        ("echo+400", "BadRequestError", "invalid_request_error"),
        ("echo+401", "AuthenticationError", "authentication_error"),
        ("echo+403", "PermissionDeniedError", "permission_error"),
        ("echo+404", "NotFoundError", "not_found_error"),
        ("echo+413", "RequestTooLargeError", "request_too_large"),
        ("echo+429", "RateLimitError", "rate_limit_error"),
        ("echo+quota", "RateLimitError", "rate_limit_error"),
        ("echo+500", "InternalServerError", "api_error"),
        ("echo+504", "DeadlineExceededError", "timeout_error"),
        ("echo+529", "OverloadedError", "overloaded_error"),
        ("echo+errorchunk", "APIStatusError", "api_error"),
        ("echo+overloaded", "APIStatusError", "overloaded_error"),
        ("no-such-model", "NotFoundError", "not_found_error"),
    ],
)
def test_the_real_client_tells_the_errors_apart(client: anthropic.Anthropic, model: str, error: str, kind: str) -> None:
    import anthropic

    with pytest.raises(getattr(anthropic, error)) as raised, client.messages.stream(**asked(model=model)) as stream:
        stream.get_final_message()
    body: Any = raised.value.body
    assert body["error"]["type"] == kind
    if model == "echo+quota":
        assert body["error"]["details"]["error_code"] == "enforced_spend_limit_reached"


def test_how_long_to_wait_is_said_in_headers(server: ModelServer) -> None:
    for model, name, value in (("echo+429-*-7", "retry-after", "7"), ("echo+429ms-*-70", "retry-after-ms", "70")):
        for path, headers in (("messages", HEADERS), ("chat/completions", {})):
            body = asked(model=model) if headers else {"model": model, "messages": asked()["messages"]}
            answer = httpx.post(f"{server.base_url}/{path}", json=body, headers=headers, timeout=PATIENCE)
            assert (answer.status_code, answer.headers[name]) == (429, value)


def test_both_apis_have_one_ledger() -> None:
    with ModelServer.running(api_key="k") as server:
        chat = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
        httpx.post(
            f"{server.base_url}/chat/completions", json=chat, headers={"Authorization": "Bearer k"}, timeout=PATIENCE
        )
        body, run = asked(model="echo+500-1"), {"x-palaver-run": "r"}
        for key, status in (("k", 500), ("k", 200), ("wrong", 401)):
            answer = httpx.post(
                f"{server.base_url}/messages", json=body, headers={"x-api-key": key, **HEADERS, **run}, timeout=PATIENCE
            )
            assert answer.status_code == status
        entries = ledger_of(server)
        assert [(entry.run, entry.attempt, entry.outcome) for entry in entries] == [
            (None, 1, "answered"), ("r", 1, "fault:500"), ("r", 2, "answered"), ("r", 3, "refused:authentication"),
        ]  # fmt: skip
        assert json.loads(answer.content)["error"]["type"] == "authentication_error"
