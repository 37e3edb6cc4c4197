"""The ledger tells what was asked, how it ended, and when a client went away."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.model_server import ModelServer, read_ledger
from tests.waiting import PATIENCE, aeventually, eventually

PROMPT = 0.5
"""Seconds within which a disconnect must be seen; alone on a machine it takes less than 0.01."""


def chat(model: str, text: str = "hello", *, stream: bool = True) -> dict[str, Any]:
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture
async def http(server: ModelServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.base_url, timeout=10) as client:
        yield client


async def test_an_entry_says_what_was_asked(server: ModelServer, http: httpx.AsyncClient) -> None:
    headers = {"X-Palaver-Run": "run_1", "Idempotency-Key": "key_1", "X-Request-Id": "req_1"}
    response = await http.post("/chat/completions", json=chat("say-2", "x" * 100), headers=headers)
    (entry,) = server.ledger()
    assert response.headers["x-request-id"] == f"req-{entry.n}"
    assert (entry.run, entry.idempotency_key, entry.request_id) == ("run_1", "key_1", "req_1")
    assert (entry.model, entry.stream, entry.messages, entry.turn, entry.call_index) == (
        "say-2",
        True,
        1,
        1,
        1,
    )
    assert (entry.status, entry.outcome, entry.chunks_sent, entry.last_user) == (200, "answered", 4, "x" * 80)
    assert len(entry.digest) == 64
    assert entry.first_byte_at is not None
    assert entry.ended_at is not None
    assert entry.at <= entry.started_at <= entry.first_byte_at <= entry.ended_at
    assert entry.at_monotonic <= time.monotonic()


@pytest.mark.parametrize(
    ("model", "outcome"),
    [
        ("hang", "fault:hang"),
        ("stall-1-2", "fault:stall"),
        ("ttft-60000", "disconnected"),
        ("tokens-1000+rate-20", "disconnected"),
    ],
)
async def test_a_disconnect_is_seen_at_once(
    server: ModelServer, http: httpx.AsyncClient, model: str, outcome: str
) -> None:
    asked = asyncio.ensure_future(http.post("/chat/completions", json=chat(model)))
    await aeventually(lambda: server.ledger(outcome="open"), why="the request arrives")
    if "-2" in model:
        await aeventually(lambda: server.ledger()[0].chunks_sent >= 2, why="the stream has begun")
    assert server.ledger()[0].closed_by_client_at is None
    left_at = time.time()
    asked.cancel()
    await aeventually(lambda: server.ledger()[0].ended_at, every=0.001, why="the disconnect is seen")
    (entry,) = server.ledger()
    assert entry.outcome == outcome
    assert entry.closed_by_client_at is not None
    assert entry.closed_by_client_at - left_at < PROMPT


async def test_a_server_that_stops_blames_no_client() -> None:
    async with ModelServer() as server, httpx.AsyncClient(base_url=server.base_url, timeout=PATIENCE) as http:
        asked = asyncio.ensure_future(http.post("/chat/completions", json=chat("hang")))
        await aeventually(lambda: server.ledger(outcome="open"), why="the request arrives")
        await server.__aexit__(None, None, None)
        with pytest.raises(httpx.RemoteProtocolError):
            await asked
    (entry,) = server.ledger()
    assert (entry.outcome, entry.closed_by_client_at) == ("stopped", None)


async def test_the_ledger_over_http(server: ModelServer, http: httpx.AsyncClient) -> None:
    for text in ("a", "b", "c"):
        await http.post("/chat/completions", json=chat("echo+429-1", text), headers={"X-Palaver-Run": text})
    url = f"{server.url}/ledger"
    page = (await http.get(url, params={"limit": 2})).json()
    assert [entry["run"] for entry in page["entries"]] == ["a", "b"]
    rest = (await http.get(url, params={"after": page["next_after"]})).json()
    assert [entry["run"] for entry in rest["entries"]] == ["c"]
    assert rest["next_after"] is None
    (only,) = (await http.get(url, params={"run": "b", "outcome": "fault:429"})).json()["entries"]
    assert (only["n"], only["status"]) == (2, 429)
    assert (await http.get(url, params={"colour": "red"})).status_code == 400
    assert (await http.delete(url)).status_code == 204
    assert server.ledger() == []
    assert (await http.post("/chat/completions", json=chat("echo+429-1", "a"))).status_code == 429
    assert [entry.n for entry in server.ledger()] == [4]
    assert (await http.get(f"{server.url}/healthz")).json() == {"status": "ok"}


@pytest.mark.slow
async def test_many_streams_at_once(server: ModelServer) -> None:
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(base_url=server.base_url, limits=limits, timeout=20) as http:
        asked = [http.post("/chat/completions", json=chat("say-10+rate-50", f"n{i}")) for i in range(100)]
        answers = await asyncio.gather(*asked)
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
    assert {entry.chunks_sent for entry in server.ledger()} == {12}


@pytest.mark.process
def test_the_file_outlives_a_killed_server(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    command = [sys.executable, "-m", "tests.model_server", "--port", "0", "--ledger", str(ledger)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with first:
        assert first.stdout is not None
        base_url = first.stdout.readline().removeprefix("listening on ").strip()
        try:
            answered = httpx.post(f"{base_url}/chat/completions", json=chat("429-2"), timeout=PATIENCE)
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{base_url}/chat/completions", json=chat("stall"), timeout=0.2)
            eventually(lambda: read_ledger(ledger)[-1].ended_at, why="the disconnect is in the file")
            with httpx.stream("POST", f"{base_url}/chat/completions", json=chat("stall"), timeout=PATIENCE):
                first.send_signal(signal.SIGKILL)
        finally:
            first.kill()
    assert answered.status_code == 429
    assert [entry.outcome for entry in read_ledger(ledger)] == ["fault:429", "fault:stall", "open"]
    ledger.write_bytes(ledger.read_bytes() + b'{"event":"sta')

    with ModelServer.running(ledger=ledger) as server:
        again = [
            httpx.post(f"{server.base_url}/chat/completions", json=chat("429-2"), timeout=PATIENCE) for _ in range(2)
        ]
    assert [response.status_code for response in again] == [429, 200]
    assert [(entry.n, entry.attempt) for entry in server.ledger()] == [(4, 2), (5, 3)]
    assert [entry.n for entry in read_ledger(ledger)] == [1, 2, 3, 4, 5]


@pytest.mark.process
def test_the_process_ends_when_told_to() -> None:
    command = [sys.executable, "-m", "tests.model_server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("listening on http://127.0.0.1:")
            process.terminate()
            assert process.wait(timeout=PATIENCE) == 0
        finally:
            process.kill()


def test_a_taken_port_is_an_error() -> None:
    with ModelServer.running() as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"), ModelServer.running(port=port):
            pass
