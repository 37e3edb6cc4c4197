"""The faults of the model server, each as a client meets it over real HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import orjson
import pytest

from tests.model_server import ModelServer
from tests.unit.test_model_server import Client, hello, ledger_of, text_of


@pytest.fixture
def client() -> Iterator[Client]:
    with ModelServer.running() as server, httpx.Client(base_url=server.base_url, timeout=10) as http:
        yield Client(server, http)


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("400", 400, None),
        ("401", 401, "invalid_api_key"),
        ("402", 402, "invalid_request_error"),
        ("403", 403, "permission_denied"),
        ("404", 404, "model_not_found"),
        ("418", 418, None),
        ("429", 429, "rate_limit_exceeded"),
        ("500", 500, None),
        ("502", 502, None),
        ("503", 503, None),
        ("529", 529, None),
        ("quota", 429, "insufficient_quota"),
        ("budget", 400, "400"),
        ("context", 400, "context_length_exceeded"),
        ("policy", 400, "content_policy_violation"),
        ("window-1", 400, "context_length_exceeded"),
    ],
)
def test_refusals(client: Client, model: str, status: int, code: str | None) -> None:
    for stream in (False, True):
        response = client.post(model, stream=stream)
        assert response.status_code == status
        assert response.json()["error"]["code"] == code
        assert "retry-after" not in response.headers


def test_a_fault_lasts_its_number_of_tries(client: Client) -> None:
    statuses = [client.post("429-2-7+503-1").status_code for _ in range(5)]
    assert statuses == [429, 429, 503, 200, 200]
    assert [entry.attempt for entry in ledger_of(client.server)] == [1, 2, 3, 4, 5]
    assert client.post("429-1-7", "fresh").headers["retry-after"] == "7"


def test_tries_are_counted_for_each_run(client: Client) -> None:
    def post(run: str) -> int:
        return client.post("429-1", headers={"X-Palaver-Run": run}).status_code

    assert [post("a"), post("b"), post("a"), post("b")] == [429, 429, 200, 200]


def test_retry_after_as_a_date(client: Client) -> None:
    date = parsedate_to_datetime(client.post("429date-1-60").headers["retry-after"])
    assert 59 <= date.timestamp() - time.time() <= 61


def test_a_fault_at_one_model_call_of_the_turn(client: Client) -> None:
    with pytest.raises(AssertionError, match="server had an error"):
        client.turn("tool-3+500-1@2")
    statuses = [(entry.call_index, entry.status) for entry in ledger_of(client.server)]
    assert statuses == [(1, 200), (2, 500)]


def test_filter_ends_the_answer(client: Client) -> None:
    choice = client.choice("say-9+filter")
    assert (choice["finish_reason"], choice["message"]["content"]) == ("content_filter", "w1 w2 w3")


def test_spoilt_tool_calls(client: Client) -> None:
    said = client.turn("tool-3+badargs-1+unknowntool-1@2")
    functions = [message["tool_calls"][0]["function"] for message in said[:3]]
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(functions[0]["arguments"])
    assert [function["name"] for function in functions] == ["calculator", "no_such_tool", "calculator"]
    assert orjson.loads(functions[2]["arguments"]) == {"expression": "1 + 3"}


def test_broken_bodies(client: Client) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(client.post("badjson").content)
    with pytest.raises(orjson.JSONDecodeError):
        client.events("badjson")
    assert client.post("html").headers["content-type"] == "text/html"
    assert client.post("empty").json()["choices"] == []
    assert [event["choices"] for event in client.events("empty")] == [[]]
    assert len(client.answer("huge-100000")) == 100_000
    assert len(text_of(client.events("huge-100000"))) == 100_000


@pytest.mark.parametrize("stream", [False, True])
def test_broken_connections(client: Client, stream: bool) -> None:
    with pytest.raises(httpx.ReadError):
        client.post("reset-1", stream=stream)
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        client.post("cut-1", stream=stream)
    assert client.post("reset-1", stream=stream).status_code == 200
    assert client.post("cut-1", stream=stream).status_code == 200
    outcomes = [entry.outcome for entry in ledger_of(client.server)]
    assert outcomes == ["fault:reset", "fault:cut", "answered", "answered"]
    assert all(entry.closed_by_client_at is None for entry in ledger_of(client.server))


def test_streams_that_end_early(client: Client) -> None:
    short = client.post("say-9+short-*-4", stream=True).text
    assert short.count("data: ") == 4
    assert short.rstrip().endswith('{"content":" w3"},"finish_reason":null}]}')
    failed = client.post("say-9+errorchunk-*-2", stream=True).text.split("\n\n")
    assert orjson.loads(failed[2].removeprefix("data: "))["error"]["code"] == "502"
    with (
        pytest.raises(httpx.RemoteProtocolError),
        client.http.stream("POST", "/chat/completions", json=hello("say-9+cut-1-4")) as response,
    ):
        response.read()
    entries = ledger_of(client.server)
    assert [entry.chunks_sent for entry in entries] == [4, 2, 4]


def raw(value: Any) -> str:
    return f"before [[raw {json.dumps(value)}]] after"


@pytest.mark.parametrize("stream", [False, True])
def test_a_raw_answer_is_what_the_message_gives(client: Client, stream: bool) -> None:
    given = {"status": 503, "headers": {"retry-after-ms": "20"}, "body": {"error": "busy"}}
    response = client.post("raw-1+say-2", raw(given), stream=stream)
    assert (response.status_code, response.json()) == (503, {"error": "busy"})
    assert (response.headers["retry-after-ms"], response.headers["content-type"]) == ("20", "application/json")
    assert client.post("raw-1+say-2", raw(given), stream=stream).status_code == 200
    assert client.post("raw", raw({"status": 204})).content == b""
    told = client.post("raw", raw({"headers": {"content-type": "text/plain"}, "body": "Zwölf"}))
    assert (told.status_code, told.text) == (200, "Zwölf")
    assert told.headers.get_list("content-type") == ["text/plain"]
    first = ledger_of(client.server)[0]
    assert (first.status, first.outcome, response.headers["x-request-id"]) == (503, "fault:raw", f"req-{first.n}")


def test_raw_bytes_are_put_on_the_wire_as_they_are(client: Client) -> None:
    head = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\n"
    assert client.post("raw", raw({"wire": head + "\u00ff\u0000a"})).content == b"\xff\x00a"
    with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
        client.post("raw", raw({"wire": ""}))
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        client.post("raw", raw({"wire": head + "a"}))
    with pytest.raises(httpx.ReadError):
        client.post("raw", raw({"wire": head + "a", "then": "reset"}))
    body = hello("raw", raw({"wire": head + "a", "then": "hang"}))
    with pytest.raises(httpx.ReadTimeout):
        client.http.post("/chat/completions", json=body, timeout=0.2)
    entries = ledger_of(client.server)
    assert [entry.outcome for entry in entries] == ["fault:raw"] * 5
    assert [entry.closed_by_client_at is not None for entry in entries] == [False] * 4 + [True]


@pytest.mark.parametrize(
    "message",
    [
        "nothing",
        "[[raw",
        "[[raw 5]]",
        *map(raw, ({"stauts": 500}, {"status": 100}, {"status": "500"}, {"wire": "\u0100"}, {"wire": "", "body": ""})),
        raw({"wire": "", "then": "explode"}),
        raw({"body": "\ud800"}),
    ],
)
def test_raw_that_cannot_be_sent_is_refused(client: Client, message: str) -> None:
    response = client.post("raw", message)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
    assert "raw" in response.json()["error"]["message"]
    assert ledger_of(client.server)[0].outcome == "refused:invalid_request"
