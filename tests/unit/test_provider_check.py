"""`palaver providers check` asks a provider as workers do, and says what is wrong in a sentence with what to do."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palaver.config.providers import Provider
from tests.model_server import ModelServer
from workers.commands.provider_check import ProviderFinding, check, check_all

PATIENCE = 60.0
KEY = "sk-of-a-provider-0123456789"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer.running() as server:
        yield server


async def checked(server: ModelServer, model: str | None, **table: object) -> ProviderFinding:
    return await check("x", Provider.model_validate({"base_url": server.base_url, **table}), model, PATIENCE)


@asynccontextmanager
async def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that says the same to whoever comes; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer.startswith(b"HTTP"):
            await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


PROTOCOLS = pytest.mark.parametrize(
    "table",
    [{}, {"protocol": "anthropic", "max_output_tokens": 100}, {"protocol": "responses"}],
    ids=["chat_completions", "anthropic", "responses"],
)


@PROTOCOLS
async def test_one_that_answers_is_ok(server: ModelServer, table: dict[str, Any]) -> None:
    found = await checked(server, "echo", **table)
    assert (found.ok, found.model, found.said, found.advice) == (True, "echo", "It answers.", "")


async def test_the_model_is_one_that_the_table_names(server: ModelServer) -> None:
    price = {"input": 1, "output": 1}
    assert (await checked(server, None, models=["echo", "say-3"])).model == "echo"
    assert (await checked(server, None, prices={"*": price, "say-3": price})).model == "say-3"


@PROTOCOLS
async def test_without_a_model_it_is_ok_once_the_provider_looks_for_one(
    server: ModelServer, table: dict[str, Any]
) -> None:
    found = await checked(server, None, prices={"*": {"input": 1, "output": 1}}, **table)
    assert (found.ok, found.model) == (True, None)
    assert "--model" in found.advice


@PROTOCOLS
async def test_a_model_that_there_is_not_is_told_from_an_address_that_there_is_not(
    server: ModelServer, table: dict[str, Any]
) -> None:
    assert (await checked(server, "no-such", **table)).advice == (
        "it has no model 'no-such': name one that it has with --model"
    )
    lost = await checked(server, "echo", base_url=f"{server.base_url}/elsewhere/v1", **table)
    assert lost.advice.startswith(f"there is nothing at {server.base_url}/elsewhere/v1/")


@pytest.mark.parametrize(
    ("model", "code", "advice"),
    [
        ("401", "x.invalid_api_key", "it wants a key: name the variable that has it with api_key_env"),
        ("403", "x.permission_denied", "ask for access"),
        ("404", "x.model_not_found", "it has no model '404'"),
        ("no-such-model", "x.model_not_found", "it has no model 'no-such-model'"),
        ("402", None, "add credit"),
        ("quota", "x.insufficient_quota", "add credit"),
        ("429", "x.rate_limit_exceeded", "wait"),
        ("503", "x.server_error", "the fault is at the provider"),
        ("html", "bad_model_response", "base_url mostly ends in /v1"),
        ("badjson", "bad_model_response", "base_url mostly ends in /v1"),
        ("empty", "empty_completion", "the fault is at the provider"),
        ("reset", "connection_reset", "look at 127.0.0.1:"),
        ("errorchunk", None, "the fault is at the provider"),
    ],
)
async def test_each_wrong_answer_is_told_with_what_to_do(
    server: ModelServer, model: str, code: str | None, advice: str
) -> None:
    found = await checked(server, model)
    assert not found.ok
    assert found.said
    assert code in (found.code, None)
    assert advice in found.advice


async def test_a_key_that_is_not_taken_and_one_that_is_not_set(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    unset = await checked(server, "echo", api_key_env="KEY_OF_X")
    assert (unset.ok, unset.code, unset.advice) == (False, "key", "set KEY_OF_X")
    monkeypatch.setenv("KEY_OF_X", KEY)
    wrong = await checked(server, "401", api_key_env="KEY_OF_X")
    assert (wrong.ok, wrong.advice) == (False, "check the key in KEY_OF_X")
    assert wrong.provider_said == "Incorrect API key provided."


async def test_an_address_without_v1_is_tried_with_it(server: ModelServer) -> None:
    found = await checked(server, "echo", base_url=server.base_url.removesuffix("/v1") + "/")
    assert not found.ok
    assert found.advice == f"it answers at another address: base_url = {server.base_url!r}"


async def test_one_that_hangs_is_given_up(server: ModelServer) -> None:
    found = await check("x", Provider(base_url=server.base_url), "hang", 0.2)
    assert (found.ok, found.code) == (False, "total_timeout")
    assert "--timeout" in found.advice


async def test_what_listens_there_may_be_something_else() -> None:
    async with answering(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        plain = await check("x", Provider(base_url=f"http://127.0.0.1:{port}/v1"), "m", PATIENCE)
        tls = await check("x", Provider(base_url=f"https://127.0.0.1:{port}/v1"), "m", PATIENCE)
    async with answering(b"HTTP/1.1 301 Moved\r\nLocation: https://x/\r\nContent-Length: 0\r\n\r\n") as port:
        moved = await check("x", Provider(base_url=f"http://127.0.0.1:{port}/v1"), "m", PATIENCE)
    gone = await check("x", Provider(base_url=f"http://127.0.0.1:{port}/v1"), "m", PATIENCE)
    nowhere = await check("x", Provider(base_url="http://no-such-host.invalid/v1"), "m", PATIENCE)
    found = (plain, tls, moved, gone, nowhere)
    assert [each.code for each in found] == ["protocol_error", "tls", "http_301", "connect_refused", "dns"]
    assert not any(each.ok for each in found)
    assert all(each.advice for each in found)


@pytest.fixture
def untrusted(tmp_path: Path) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: there is no openssl on PATH to make a certificate with")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@pytest.mark.slow
async def test_a_certificate_that_nobody_trusts_is_named(untrusted: ssl.SSLContext) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n", untrusted) as port:
        found = await check("x", Provider(base_url=f"https://127.0.0.1:{port}/v1"), "m", PATIENCE)
    assert (found.ok, found.code) == (False, "tls_certificate")
    assert "SSL_CERT_FILE" in found.advice


FINE = b'{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}]}'
Respond = Callable[[bytes, bytes], Awaitable[tuple[bytes, bytes]]]
"""Status and body, for path and body of a request."""


@asynccontextmanager
async def serving(respond: Respond) -> AsyncIterator[str]:
    """A server of one's own; gives its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        status, body = await respond(head.split()[1], await reader.readexactly(length))
        kind = b"Content-Type: application/json\r\nContent-Length: %d" % len(body)
        writer.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, kind, body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"


async def test_a_limit_on_tokens_that_is_refused_is_left_out() -> None:
    asked: list[bool] = []

    async def respond(path: bytes, body: bytes) -> tuple[bytes, bytes]:
        asked.append(b'"max_tokens":1' in body)
        refusal = b'{"error":{"message":"Unsupported parameter: \'max_tokens\' is not supported with this model."}}'
        return (b"400 Bad Request", refusal) if asked[-1] else (b"200 OK", FINE)

    async with serving(respond) as place:
        assert (await check("x", Provider(base_url=place), "m", PATIENCE)).ok
    assert asked == [True, False]


async def test_one_that_speaks_another_protocol_is_tried_in_it() -> None:
    said = {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "stop_reason": "end_turn"}
    answer = json.dumps({"type": "message", "id": "msg_1", "model": "m", **said, "usage": {}}).encode()

    async def respond(path: bytes, body: bytes) -> tuple[bytes, bytes]:
        return (b"200 OK", answer) if path == b"/v1/messages" else (b"404 Not Found", b"404 page not found")

    async with serving(respond) as place:
        found = await check("x", Provider(base_url=place), "m", PATIENCE)
    assert (found.ok, found.advice) == (False, "it speaks another protocol: protocol = 'anthropic'")
    assert found.provider_said == "404 page not found"


async def test_all_are_asked_side_by_side() -> None:
    """Each answers only once all have been asked."""
    asked, last = 0, asyncio.Event()

    async def respond(path: bytes, body: bytes) -> tuple[bytes, bytes]:
        nonlocal asked
        asked += 1
        if asked == 8:
            last.set()
        await last.wait()
        return b"200 OK", FINE

    async with serving(respond) as place:
        table = {f"p{i}": Provider(base_url=place) for i in range(8)}
        found = [each async for each in check_all(table, "m", PATIENCE)]
    assert {each.provider for each in found} == table.keys()
    assert all(each.ok for each in found)
