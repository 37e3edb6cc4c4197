"""The model server answers as its table of directives says, over real HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.model_server import LedgerEntry, ModelServer
from tests.waiting import PATIENCE, eventually

CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}, "note": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
PICKY = {
    "type": "function",
    "function": {
        "name": "picky_tool",
        "parameters": {
            "type": "object",
            "$defs": {"place": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
            "properties": {
                "unit": {"enum": ["metre", "foot"]},
                "count": {"type": "integer", "minimum": 5},
                "share": {"type": "number"},
                "sure": {"type": "boolean"},
                "names": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                "place": {"$ref": "#/$defs/place"},
                "maybe": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            },
        },
    },
}


def ledger_of(server: ModelServer) -> list[LedgerEntry]:
    """The ledger once every request in it has ended: a client has its answer a moment before the server counts it."""

    def ended() -> list[LedgerEntry]:
        entries = server.ledger()
        return entries if all(entry.outcome != "open" for entry in entries) else []

    return eventually(ended, why="every request in the ledger has ended")


class Client:
    """A chat client that speaks to one server over one pool of connections."""

    def __init__(self, server: ModelServer, http: httpx.Client) -> None:
        self.server = server
        self.http = http

    def post(self, model: str, messages: Any = "hello there", **fields: Any) -> httpx.Response:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        headers = fields.pop("headers", {})
        body = {"model": model, "messages": messages, **fields}
        return self.http.post("/chat/completions", json=body, headers=headers)

    def choice(self, model: str, messages: Any = "hello there", **fields: Any) -> dict[str, Any]:
        response = self.post(model, messages, **fields)
        assert response.status_code == 200, response.text
        choice: dict[str, Any] = response.json()["choices"][0]
        return choice

    def answer(self, model: str, messages: Any = "hello there", **fields: Any) -> str:
        return str(self.choice(model, messages, **fields)["message"]["content"])

    def events(self, model: str, messages: Any = "hello there", **fields: Any) -> list[dict[str, Any]]:
        return sse(self.post(model, messages, stream=True, **fields).text)

    def turn(self, model: str, text: str = "go", tools: Any = (CALCULATOR,)) -> list[dict[str, Any]]:
        """Play a whole turn as an agent does; each result names its call. Returns the assistant messages."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
        said: list[dict[str, Any]] = []
        while not said or said[-1].get("tool_calls"):
            message = self.choice(model, messages, tools=list(tools))["message"]
            said.append(message)
            messages.append(message)
            for call in message.get("tool_calls", []):
                result = f"result of {call['id']}"
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return said


def sse(text: str) -> list[dict[str, Any]]:
    """The events of a stream that ends as it should."""
    assert text.endswith("data: [DONE]\n\n")
    return [orjson.loads(part.removeprefix("data: ")) for part in text.split("\n\n")[:-2]]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])


def widths(said: list[dict[str, Any]]) -> list[int]:
    return [len(message.get("tool_calls", [])) for message in said]


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer.running() as running:
        yield running


@pytest.fixture
def client(server: ModelServer) -> Iterator[Client]:
    server.forget()
    with httpx.Client(base_url=server.base_url, timeout=10) as http:
        yield Client(server, http)


def test_echo_repeats_the_last_user_text(client: Client) -> None:
    parts = [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]
    assert client.answer("echo", " spaced  out ") == "echo:  spaced  out "
    assert client.answer("echo", [{"role": "user", "content": parts}]) == "echo: two parts"
    assert text_of(client.events("echo", " spaced  out ")) == "echo:  spaced  out "


def test_say_and_tokens_set_the_length(client: Client) -> None:
    assert client.answer("say-3") == "w1 w2 w3"
    assert client.answer("tokens-4", "hi") == "echo: hi w3 w4"
    assert client.answer("tokens-1", "hi") == "echo:"
    assert client.choice("say-9", max_tokens=2) == {
        "index": 0,
        "message": {"role": "assistant", "content": "w1 w2", "refusal": None, "annotations": []},
        "logprobs": None,
        "finish_reason": "length",
    }


def test_a_stream_has_role_tokens_finish_and_usage(client: Client) -> None:
    events = client.events("say-4+chunk-3", stream_options={"include_usage": True})
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "w1 w2 w3"}, {"content": " w4"}, {}]
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None, None, None, "stop"]
    assert all(event["usage"] is None for event in events[:-1])
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 4
    assert events[-1]["usage"] == client.post("say-4").json()["usage"]
    assert "usage" not in client.events("say-4")[-1]


@pytest.mark.slow
def test_long_streams_are_whole(client: Client) -> None:
    assert text_of(client.events("say-5000")).split() == [f"w{i}" for i in range(1, 5001)]


def test_tool_calls_one_after_the_other_then_the_answer(client: Client) -> None:
    said = client.turn("tool-3")
    assert widths(said) == [1, 1, 1, 0]
    calls = [message["tool_calls"][0] for message in said[:3]]
    assert [call["id"] for call in calls] == ["call_1_1_1", "call_1_2_1", "call_1_3_1"]
    assert [call["function"]["arguments"] for call in calls] == [f'{{"expression":"1 + {i}"}}' for i in (1, 2, 3)]
    assert said[-1]["content"] == "done: 3 tool results, the last one: result of call_1_3_1"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("parallel-3", [3, 0]),
        ("parallel-2-3", [2, 2, 2, 0]),
        ("steps-1-3-2", [1, 3, 2, 0]),
        ("tool-2+parallel-3", [1, 1, 3, 0]),
        ("tool-0", [0]),
    ],
)
def test_plans_of_a_turn(client: Client, model: str, expected: list[int]) -> None:
    said = client.turn(model)
    assert widths(said) == expected
    ids = [call["id"] for message in said for call in message.get("tool_calls", [])]
    assert len(set(ids)) == sum(expected)


def test_a_second_turn_starts_its_plan_anew(client: Client) -> None:
    history = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "fine"},
        {"role": "user", "content": "two"},
    ]
    calls = client.choice("tool-1", history, tools=[CALCULATOR])["message"]["tool_calls"]
    assert calls[0]["id"] == "call_2_1_1"


def test_use_picks_the_tool(client: Client) -> None:
    def names(model: str) -> list[str]:
        message = client.choice(model, tools=[CALCULATOR, PICKY])["message"]
        return [call["function"]["name"] for call in message["tool_calls"]]

    assert names("parallel-3") == ["calculator"] * 3
    assert names("tool-1+use-picky_tool") == ["picky_tool"]
    assert names("parallel-3+use-each") == ["calculator", "picky_tool", "calculator"]
    refused = client.post("tool-1+use-a-b", tools=[CALCULATOR])
    assert refused.status_code == 400
    assert "use-a-b" in refused.json()["error"]["message"]


def test_arguments_fit_the_schema_or_are_given(client: Client) -> None:
    def arguments(text: str) -> dict[str, Any]:
        message = client.choice("parallel-2", text, tools=[PICKY])["message"]
        parsed: dict[str, Any] = orjson.loads(message["tool_calls"][1]["function"]["arguments"])
        return parsed

    assert arguments("go") == {
        "unit": "metre",
        "count": 5,
        "share": 0.02,
        "sure": True,
        "names": ["1 + 2"],
        "place": {"x": 2},
        "maybe": "1 + 2",
    }
    assert arguments('please [[args {"a": [[{"b": 1}]]}]] now') == {"a": [[{"b": 1}]]}
    assert client.post("tool-1", "[[args {nope}]]", tools=[PICKY]).status_code == 400


def test_without_tools_the_answer_comes_at_once(client: Client) -> None:
    assert client.answer("tool-3") == "echo: hello there"
    assert client.answer("tool-3", tools=[CALCULATOR], tool_choice="none") == "echo: hello there"


@pytest.mark.parametrize("split", ["", "+args-split", "+args-split-1"])
def test_streamed_tool_calls_add_up(client: Client, split: str) -> None:
    whole = client.choice("parallel-2", tools=[CALCULATOR])["message"]["tool_calls"]
    events = client.events(f"parallel-2{split}", tools=[CALCULATOR])
    calls: dict[int, dict[str, Any]] = {}
    for event in events[1:-1]:
        (delta,) = event["choices"][0]["delta"]["tool_calls"]
        index = delta.pop("index")
        if index in calls:
            calls[index]["function"]["arguments"] += delta["function"]["arguments"]
        else:
            calls[index] = delta
    assert [calls[0], calls[1]] == whole
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert (len(events) > 4) is bool(split)


def test_reasoning_comes_before_the_answer(client: Client) -> None:
    message = client.choice("say-1+reasoning-2")["message"]
    assert message["reasoning_content"] == " thought1 thought2"
    deltas = [event["choices"][0]["delta"] for event in client.events("say-1+reasoning-2")]
    assert [next(iter(delta), None) for delta in deltas] == [
        "role",
        "reasoning_content",
        "reasoning_content",
        "content",
        None,
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_pace_is_kept(client: Client, stream: bool) -> None:
    began = time.monotonic()
    client.post("tokens-10+rate-50+ttft-100", stream=stream)
    assert 0.3 <= time.monotonic() - began < 2
    (entry,) = ledger_of(client.server)
    assert entry.first_byte_at is not None
    assert entry.first_byte_at - entry.started_at >= (0.1 if stream else 0.3)


def hello(model: str, text: str = "hello") -> dict[str, Any]:
    return {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}


@pytest.mark.parametrize("model", ["nope", "tool", "tool-x", "say-2@1", "rate-0", "429-1-2-3", "huge", "", "echo+"])
def test_unknown_models_list_what_is_known(client: Client, model: str) -> None:
    response = client.post(model)
    assert response.status_code == (404 if model else 400)
    if model:
        error = response.json()["error"]
        assert error["code"] == "model_not_found"
        assert "tool-N" in error["message"]
        assert "stall[-N[-K]]" in error["message"]


def test_models_are_listed_and_work(client: Client) -> None:
    models = client.http.get("/models").json()["data"]
    assert all(client.post(model["id"]).status_code in (200, 429) for model in models[:-1])
    assert client.http.get("/nothing").status_code == 404


def test_only_the_right_key_is_let_in() -> None:
    with (
        ModelServer.running(api_key="sesame") as server,
        httpx.Client(base_url=server.base_url, timeout=PATIENCE) as http,
    ):
        wrong = http.post("/chat/completions", json=hello("echo"), headers={"Authorization": "Bearer x"})
        assert wrong.json()["error"]["code"] == "invalid_api_key"
        assert http.get("/models").status_code == 401
        right = {"Authorization": "Bearer sesame"}
        assert http.post("/chat/completions", json=hello("echo"), headers=right).status_code == 200
        assert http.get("/models", headers=right).status_code == 200
        assert [entry.outcome for entry in ledger_of(server)] == ["refused:authentication", "answered"]
