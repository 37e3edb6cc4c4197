"""Bodies that are not what they must be: the bad-input list, each with its status and its code."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.api_world import BODY, LiveRequest, World, assert_problem, in_one_world, world
from tests.waiting import aeventually

JSON = {"Content-Type": "application/json"}
GOOD = json.dumps(BODY)
SECRET = "sk-CANARY-0123456789"


@in_one_world(
    [
        (b"", "malformed_json"),
        (b"  \n", "malformed_json"),
        (b"{", "malformed_json"),
        (b'{"input": "a",}', "malformed_json"),
        (b'{"input": "a"} // so', "malformed_json"),
        (b"{'input': 'a'}", "malformed_json"),
        (b'{"input": "a"}{"input": "a"}', "malformed_json"),
        (b'{"input": "a\nb"}', "malformed_json"),
        (GOOD.encode("utf-16"), "malformed_json"),
        (GOOD.encode("utf-16-le"), "malformed_json"),
        (GOOD.encode("utf-32"), "malformed_json"),
        (b"\xef\xbb\xbf" + GOOD.encode(), "malformed_json"),
        (b'{"input": "\xff\xfe"}', "malformed_json"),
        (b'{"input": "\xc0\xaf"}', "malformed_json"),
        (b'{"agent": {"temperature": NaN}, "input": "a"}', "malformed_json"),
        (b'{"agent": {"temperature": Infinity}, "input": "a"}', "malformed_json"),
        (b'{"agent": {"temperature": -Infinity}, "input": "a"}', "malformed_json"),
        (b'{"input": "a", "input": "b"}', "duplicate_key"),
        (b'{"input": "a", "metadata": {"k": "1", "\\u006b": "2"}}', "duplicate_key"),
        (b"[" * 20_000 + b"]" * 20_000, "too_deep"),
        (b'{"input": "a", "metadata": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}", "too_deep"),
        (b'{"input": ' + b"[" * 32 + b"]" * 32 + b"}", "too_deep"),
    ]
)
async def test_what_is_not_json_is_refused(api: World, raw: bytes, code: str) -> None:
    for path in ("/v1/runs", "/v1/conversations"):
        if raw or path == "/v1/runs":
            assert_problem(await api.client.post(path, content=raw, headers=JSON), 400, code)


@in_one_world(["[]", "null", '"text"', "5", "true", "[[1]]"])
async def test_a_root_that_is_no_object_does_not_fit(api: World, root: str) -> None:
    problem = assert_problem(await api.client.post("/v1/runs", content=root, headers=JSON), 422, "validation_error", "")
    assert problem["errors"][0]["message"] == "must be an object"


@in_one_world(["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None,
             "application/json; charset=utf-16", "application/jsonp"])  # fmt: skip
async def test_other_media_types_are_refused(api: World, kind: str | None) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = await api.client.post("/v1/runs", content=GOOD.encode(), headers=headers)
    assert_problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
async def test_json_in_utf8_is_taken(kind: str) -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", content=GOOD, headers={"Content-Type": kind})
        assert answer.status_code == 202


async def test_a_compressed_body_is_refused() -> None:
    async with world() as api:
        headers = {**JSON, "Content-Encoding": "gzip"}
        answer = await api.client.post("/v1/runs", content=gzip.compress(GOOD.encode()), headers=headers)
        assert_problem(answer, 415, "unsupported_media_type")


async def test_a_body_that_declares_too_much_is_refused_before_it_is_read() -> None:
    async with world() as api:
        live = LiveRequest(
            api.app, "POST", "/v1/runs", {"content-type": "application/json", "content-length": "30000000"}
        )
        await aeventually(lambda: live.over)
        assert (live.status, json.loads(live.body)["code"]) == (413, "payload_too_large")
        await live.task


async def test_an_endless_body_is_refused_at_the_limit() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 8192
            yield b" " * 8192

    async with world() as api:
        answer = await api.client.post("/v1/runs", content=endless(), headers=JSON)
        assert_problem(answer, 413, "payload_too_large")
        assert answer.headers["connection"] == "close"
        assert sent <= 64 * 1024 + 2 * 8192


async def test_a_body_that_stalls_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.bodies._PATIENCE", 0.05)
    async with world() as api:
        live = LiveRequest(api.app, "POST", "/v1/runs", {"content-type": "application/json"})
        live.feed(b'{"input"')
        await aeventually(lambda: live.over)
        assert (live.status, json.loads(live.body)["code"]) == (408, "request_timeout")
        await live.task


async def test_a_client_that_goes_in_the_middle_of_its_body_leaves_nothing_behind() -> None:
    async with world() as api:
        live = LiveRequest(api.app, "POST", "/v1/runs", {"content-type": "application/json"})
        live.feed(b'{"input"')
        live.disconnect()
        await live.task
        assert live.status == 400
        assert (await api.client.get("/v1/runs")).json()["data"] == []


def _agent(**changes: Any) -> dict[str, Any]:
    return {"agent": {**BODY["agent"], **changes}}


@in_one_world([
        (_agent(max_steps=True), "/agent/max_steps", "int_type"),
        (_agent(max_steps="5"), "/agent/max_steps", "int_type"),
        (_agent(max_steps=5.0), "/agent/max_steps", "int_type"),
        (_agent(max_steps=0), "/agent/max_steps", "greater_than_equal"),
        (_agent(max_steps=-1), "/agent/max_steps", "greater_than_equal"),
        (_agent(max_steps=10**9), "/agent/max_steps", "less_than_equal"),
        (_agent(temperature="0.5"), "/agent/temperature", "float_type"),
        (_agent(stream=1), "/agent/stream", "bool_type"),
        (_agent(model="no slash"), "/agent/model", "string_pattern_mismatch"),
        (_agent(model=None), "/agent/model", "string_type"),
        (_agent(tools="calculator"), "/agent/tools", "tuple_type"),
        (_agent(tools=["rm -rf"]), "/agent/tools/0", "string_pattern_mismatch"),
        ({"agent": "fake/tool-20"}, "/agent", "model_type"),
        ({"agent": None, "input": 5}, "/input", "input_type"),
        ({"input": {"role": "user"}}, "/input", "input_type"),
        ({"input": [{"role": "root", "content": "a"}]}, "/input/0/role", "literal_error"),
        ({"input": [{"content": "a"}]}, "/input/0/role", "missing"),
        ({"input": [{"role": "user", "content": 5}]}, "/input/0/content", "string_type"),
        ({"input": [{"role": "tool", "call_id": "a", "is_error": "?"}]}, "/input/0/is_error", "bool_type"),
        ({"input": ["a"]}, "/input/0", "model_type"),
        ({"conversation_id": 5}, "/conversation_id", "string_type"),
        ({"on_conflict": "merge"}, "/on_conflict", "literal_error"),
        (_agent(name="two words"), "/agent/name", "string_pattern_mismatch"),
        (_agent(retry=5), "/agent/retry", "string_type"),
        (_agent(fallbacks=["x"]), "/agent/fallbacks/0", "string_pattern_mismatch"),
        (_agent(client_tools={}), "/agent/client_tools", "tuple_type"),
        (_agent(client_tools=[{}]), "/agent/client_tools/0/name", "missing"),
        (_agent(client_tools=[{"name": "a b"}]), "/agent/client_tools/0/name", "string_pattern_mismatch"),
        (_agent(client_tools=[{"name": "a", "parameters": []}]), "/agent/client_tools/0/parameters", "dict_type"),
        (_agent(client_tools=[{"name": "a", "timeout": 0}]), "/agent/client_tools/0/timeout", "greater_than_equal"),
        (_agent(approvals={"require": "calculator"}), "/agent/approvals/require", "literal_error"),
        (_agent(approvals={"require": ["a b"]}), "/agent/approvals/require/0", "string_pattern_mismatch"),
        (_agent(approvals={"require": [5]}), "/agent/approvals/require/0", "string_type"),
        (_agent(approvals={"timeout": 1e9}), "/agent/approvals/timeout", "less_than_equal"),
        ({"metadata": {"k": 1}}, "/metadata/k", "string_type"),
        ({"metadata": {"k" * 65: "v"}}, f"/metadata/{'k' * 64}", "string_too_long"),
        ({"metadata": {"k": "v" * 513}}, "/metadata/k", "string_too_long"),
        ({"metadata": {str(n): "v" for n in range(33)}}, "/metadata", "too_long"),
        ({"tags": ["a b"]}, "/tags/0", "string_pattern_mismatch"),
        ({"tags": {}}, "/tags", "tuple_type"),
        ({"deadline": 1e12}, "/deadline", None),
        ({"deadline": "tomorrow"}, "/deadline", None),
        ({"deadline": "9999999-01-01T00:00:00Z"}, "/deadline", None),
    ])  # fmt: skip
async def test_values_of_the_wrong_kind_are_named(
    api: World, changes: dict[str, Any], pointer: str, code: str | None
) -> None:
    answer = await api.client.post("/v1/runs", json={**BODY, **changes})
    problem = assert_problem(answer, 422, "validation_error", pointer)
    if code is not None:
        assert problem["errors"][0]["code"] == code


@pytest.mark.parametrize("name", ["__proto__", "constructor", "ключ", "a/b~c"])
async def test_odd_metadata_keys_are_plain_data(name: str) -> None:
    async with world() as api:
        assert (await api.submit(metadata={name: "v"}))["metadata"] == {name: "v"}


@in_one_world(
    [
        (b'{"agent": {"model": "fake/a", "temperature": 1e400}, "input": "a"}', "/agent/temperature"),
        (
            b'{"agent": {"model": "fake/a", "max_steps": ' + b"9" * 5000 + b'}, "input": "a"}',
            "/agent/max_steps",
        ),
        (
            b'{"agent": {"model": "fake/a", "max_steps": -' + b"9" * 30 + b'}, "input": "a"}',
            "/agent/max_steps",
        ),
    ]
)
async def test_numbers_beyond_measure_do_not_fit(api: World, raw: bytes, pointer: str) -> None:
    answer = await api.client.post("/v1/runs", content=raw, headers=JSON)
    assert_problem(answer, 422, "validation_error", pointer)


@in_one_world(
    [
        (rb'{"agent": {"model": "fake/a"}, "input": "a\ud800"}', "/input"),
        (rb'{"agent": {"model": "fake/a"}, "input": "\udc00\ud800"}', "/input"),
        (rb'{"agent": {"model": "fake/a"}, "input": "a\u0000b"}', "/input"),
        (
            rb'{"agent": {"model": "fake/a"}, "input": [{"role": "user", "content": "\u0000"}]}',
            "/input/0/content",
        ),
        (rb'{"agent": {"model": "fake/a"}, "input": "a", "metadata": {"\ud83d": "v"}}', "/metadata"),
    ]
)
async def test_text_that_is_no_text_is_refused(api: World, raw: bytes, pointer: str) -> None:
    answer = await api.client.post("/v1/runs", content=raw, headers=JSON)
    assert_problem(answer, 422, "invalid_unicode", pointer)


async def test_escapes_that_are_text_are_kept() -> None:
    async with world() as api:
        raw = rb'{"agent": {"model": "fake/a"}, "input": "a", "metadata": {"k": "\ud83e\udd8a \\u0000 \u00e4"}}'
        answer = await api.client.post("/v1/runs", content=raw, headers=JSON)
        assert answer.json()["metadata"] == {"k": "🦊 \\u0000 ä"}


async def test_too_many_values_are_refused_whatever_they_are() -> None:
    async with world() as api:
        for body in ({**BODY, "metadata": list(range(10_000))}, {**BODY, "tags": [[]] * 10_000}):
            assert_problem(await api.client.post("/v1/runs", json=body), 422, "too_many_items")


@in_one_world(
    [
        ({**BODY, "metdata": {}}, "/metdata", "'metadata'"),
        ({**BODY, **_agent(max_step=1)}, "/agent/max_step", "'max_steps'"),
        ({**BODY, **_agent(stuck={"same_results": 1})}, "/agent/stuck/same_results", "'same_result'"),
        ({**BODY, "input": [{"role": "user", "contents": "a"}]}, "/input/0/contents", "'content'"),
        (
            {**BODY, **_agent(client_tools=[{"name": "a", "time_out": 1}])},
            "/agent/client_tools/0/time_out",
            "'timeout'",
        ),
        ({**BODY, **_agent(approvals={"requires": "always"})}, "/agent/approvals/requires", "'require'"),
        ({**BODY, "budget": {"token": 1}}, "/budget/token", "'tokens'"),
        ({**BODY, "api_keyy": SECRET}, "/api_keyy", None),
        ({**BODY, "api_key": [SECRET]}, "/api_key", None),
    ]
)
async def test_an_unknown_field_is_named_and_its_value_is_not(
    api: World, body: dict[str, Any], pointer: str, hint: str | None
) -> None:
    answer = await api.client.post("/v1/runs", json=body)
    problem = assert_problem(answer, 422, "validation_error", pointer)
    assert problem["errors"][0]["code"] == "unknown_field"
    assert hint is None or f"did you mean {hint}?" in problem["errors"][0]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"api_key": SECRET},
        {"agent": SECRET, "input": "a"},
        {"agent": {"model": SECRET, "instructions": [SECRET]}, "input": "a"},
        {"agent": {"model": f"{SECRET}/x", "tools": [SECRET]}, "input": "a"},
        {**BODY, "input": [{"role": SECRET, "content": {"key": SECRET}}]},
        {
            **BODY,
            "deadline": SECRET,
            "on_conflict": SECRET,
            "tags": [f"{SECRET} "],
            "conversation_id": [SECRET],
        },
        {**BODY, "conversation_id": SECRET},
        {**BODY, **_agent(approvals={"require": SECRET})},
        {**BODY, **_agent(tools=[SECRET], approvals={"require": [SECRET + "?"]})},
        {**BODY, **_agent(client_tools=[{"name": SECRET, "parameters": {"type": SECRET, "required": SECRET}}])},
        {**BODY, "metadata": {"a": [SECRET], "b": SECRET * 100}},
    ],
)
async def test_nothing_that_was_sent_is_said_again(body: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", json=body)
        assert answer.status_code == 422
        assert SECRET not in answer.text
        assert SECRET not in caplog.text


async def test_everything_that_is_wrong_is_said_at_once() -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", json={"agent": {"max_steps": "x"}, "tags": [5]})
        assert_problem(answer, 422, "validation_error", "/agent/model", "/agent/max_steps", "/input", "/tags/0")
