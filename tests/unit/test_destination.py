"""Keys, addresses and ids of requests: none is ever that of another provider, or older than the newest."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from itertools import permutations

import pytest
from pydantic import SecretStr

from palaver.config.providers import Provider
from palaver.schemas.endpoints import Endpoint
from palaver.schemas.models import AgentSpec
from palaver.schemas.protocols import ProtocolName
from tests.unit.answering import Answering, complete
from workers.models.model import ModelPort

ANSWER = b'{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)


@pytest.fixture
async def server() -> AsyncIterator[Answering]:
    async with Answering(WHOLE) as answering:
        yield answering


@pytest.fixture
async def port(server: Answering, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelPort]:
    """A port whose table has two entries of the server: with a key, and without."""
    monkeypatch.setenv("TABLE_KEY", "key-of-the-table")
    table = {"open": Provider(base_url=server.url), "keyed": Provider(base_url=server.url, api_key_env="TABLE_KEY")}
    port = ModelPort(table)
    yield port
    await port.close()


def inline(url: str, key: str | None, protocol: ProtocolName = "chat_completions") -> AgentSpec:
    """An agent that is asked at an endpoint of its conversation."""
    endpoint = Endpoint(base_url=url, api_key=None if key is None else SecretStr(key), protocol=protocol)
    agent = AgentSpec(model="inline/m", endpoint=endpoint)
    # As a claim brings it.
    return agent.model_copy(update={"model": endpoint.called(agent.model)})


def keys(server: Answering) -> list[str | None]:
    return [headers.get("authorization") for _, headers in server.heads]


async def test_a_call_has_the_key_of_its_own_conversation(server: Answering, port: ModelPort) -> None:
    agents: dict[str | None, AgentSpec] = {
        "Bearer one": inline(server.url, "one"),
        "Bearer two": inline(server.url, "two"),
        None: inline(server.url, None),
        "Bearer key-of-the-table": AgentSpec(model="keyed/m"),
    }
    orders: Iterator[tuple[str | None, ...]] = permutations(agents)
    wanted = [key for order in orders for key in order]
    for key in wanted:
        await complete(port, agents[key])
    assert keys(server) == wanted


async def test_a_provider_without_a_key_is_sent_none(server: Answering, port: ModelPort) -> None:
    for name in ("open", "keyed", "open"):
        await complete(port, AgentSpec(model=f"{name}/m"))
    assert keys(server) == [None, "Bearer key-of-the-table", None]


async def test_a_key_that_was_changed_is_the_next_to_be_sent(server: Answering, port: ModelPort) -> None:
    agent = inline(server.url, "old")
    await complete(port, agent)
    assert agent.endpoint is not None
    renewed = agent.endpoint.model_copy(update={"api_key": SecretStr("new")})
    await complete(port, agent.model_copy(update={"endpoint": renewed}))
    assert keys(server) == ["Bearer old", "Bearer new"]


async def test_a_key_goes_to_its_own_address_and_in_its_own_protocol(server: Answering, port: ModelPort) -> None:
    for agent in (
        inline(f"{server.url}/a", "k"),
        inline(f"{server.url}/b", "k"),
        inline(f"{server.url}/a", "k", "anthropic"),
        inline(f"{server.url}/a", "k"),
    ):
        await complete(port, agent)
    assert [first.split()[1] for first, _ in server.heads] == [
        "/a/chat/completions",
        "/b/chat/completions",
        "/a/messages",
        "/a/chat/completions",
    ]
    assert [(headers.get("authorization"), headers.get("x-api-key")) for _, headers in server.heads] == [
        ("Bearer k", None),
        ("Bearer k", None),
        (None, "k"),
        ("Bearer k", None),
    ]


async def test_the_login_of_an_address_is_sent_as_one(server: Answering) -> None:
    port = ModelPort({"login": Provider(base_url=server.url.replace("//", "//ann:s%3Acret@"))})
    await complete(port, AgentSpec(model="login/m"))
    await port.close()
    assert keys(server) == ["Basic " + b64encode(b"ann:s:cret").decode()]


async def test_a_request_has_its_own_ids_and_length_and_the_headers_of_all(server: Answering, port: ModelPort) -> None:
    bodies = {"run_a:1:1": b"{}", "run_b:7:2": b'{"much": "more"}'}
    for request_id, body in bodies.items():
        await complete(port, AgentSpec(model="open/m"), body, request_id=request_id)
    assert server.connections == 1
    for (first, headers), (request_id, body) in zip(server.heads, bodies.items(), strict=True):
        assert first == "POST /chat/completions HTTP/1.1"
        assert headers.pop("user-agent")
        assert headers == {
            "host": server.url.removeprefix("http://"),
            "content-type": "application/json",
            "accept": "*/*",
            "accept-encoding": "identity",
            "content-length": str(len(body)),
            "x-request-id": request_id,
            "x-palaver-run": request_id.partition(":")[0],
        }
