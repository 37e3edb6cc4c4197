"""The model server refuses the histories that real providers refuse, and says which call is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.model_server import ModelServer
from tests.waiting import PATIENCE

USER = {"role": "user", "content": "go"}
CACHED = {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}
PLAIN = {"role": "assistant", "content": "fine"}


def asks(*ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "calculator", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "1"}


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with ModelServer.running() as server, httpx.Client(base_url=server.base_url, timeout=PATIENCE) as client:
        yield client


def post(http: httpx.Client, messages: Any, **fields: Any) -> httpx.Response:
    return http.post("/chat/completions", json={"model": "echo", "messages": messages, **fields})


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, USER],
        [USER, asks("a", "b"), result("b"), result("a")],
        [USER, asks("a"), result("a"), asks("a"), result("a"), PLAIN, USER],
        [USER, {**asks("a"), "content": "let me see"}, result("a"), USER],
        [{"role": "system", "content": [CACHED]}, {"role": "user", "content": [{"type": "text", "text": ""}, CACHED]}],
    ],
)
def test_whole_histories_are_accepted(http: httpx.Client, messages: Any) -> None:
    assert post(http, messages).status_code == 200


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([USER, asks("c_open")], "c_open"),
        ([USER, asks("c_done", "c_open"), result("c_done"), USER], "c_open"),
        ([USER, asks("c_open"), PLAIN, result("c_open")], "c_open"),
        ([USER, asks("c_twice"), result("c_twice"), result("c_twice")], "c_twice"),
        ([USER, result("c_stray")], "c_stray"),
        ([USER, asks("c_a"), result("c_stray")], "c_stray"),
        ([USER, asks("c_a"), result("c_a"), PLAIN, result("c_a")], "c_a"),
        ([USER, asks("c_same", "c_same"), result("c_same")], "c_same"),
        ([USER, {**asks("c_x"), "tool_calls": []}], "tool_calls"),
        ([USER, {"role": "tool", "content": "1"}], "tool_call_id"),
        ([], "non-empty"),
        (None, "non-empty"),
        (["text"], "role"),
        ([{"role": "robot", "content": "x"}], "robot"),
        ([{"role": "user", "content": 7}], "content"),
        ([{"role": "user", "content": None}], "content"),
        ([{"role": "user", "content": ["x"]}], "part"),
        ([{"role": "user", "content": [{"type": "text"}]}], "text"),
        ([USER, {"role": "assistant", "content": None}], "content"),
        ([{**USER, "cache_control": CACHED["cache_control"]}], "on a block"),
        ([{"role": "user", "content": [{**CACHED, "text": ""}]}], "empty"),
        ([{"role": "user", "content": [{**CACHED, "cache_control": True}]}], "ephemeral"),
        ([{"role": "user", "content": [CACHED] * 5}], "maximum of 4"),
    ],
)
def test_broken_histories_are_refused(http: httpx.Client, messages: Any, said: str) -> None:
    response = post(http, messages)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert said in error["message"]


def test_breakpoints_are_in_the_ledger_and_change_nothing_else() -> None:
    with ModelServer.running() as server, httpx.Client(base_url=server.base_url, timeout=PATIENCE) as client:
        for last in (USER, {"role": "user", "content": [CACHED]}):
            assert post(client, [USER, PLAIN, last]).json()["choices"][0]["message"]["content"] == "echo: go"
        without, cached = server.ledger()
    assert (list(without.breakpoints), list(cached.breakpoints)) == ([], [2])
    assert (cached.digest, cached.attempt) == (without.digest, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": "yes"},
        {"stream_options": 1},
        {"max_tokens": 0},
        {"tools": {}},
        {"tools": []},
        {"tools": [{"type": "function"}]},
        {"tools": [{"type": "function", "function": {"name": "a"}}] * 2},
        {"tool_choice": {"type": "function", "function": {"name": "a"}}},
        {"model": 3},
    ],
)
def test_broken_fields_are_refused(http: httpx.Client, fields: dict[str, Any]) -> None:
    assert post(http, [USER], **fields).json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_bodies_that_are_no_request_are_refused(http: httpx.Client, body: bytes) -> None:
    assert http.post("/chat/completions", content=body).status_code == 400
