"""Endpoints of agents over HTTP: allowed ones are taken, others refused with a sentence, and no key is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from palaver.store.redis import keys
from palaver.vocabulary.limits import limit_of
from tests.unit.api_world import SETTINGS, World, assert_problem, in_one_world, world

CANARY = "sk-canary-of-an-endpoint-1f2e"
HOSTS = ("api.example.com", "127.0.0.1:8000")
ALLOWING = SETTINGS.model_copy(update={"inline_provider_hosts": HOSTS})


def agent(base_url: str = "https://api.example.com/v1", **more: Any) -> dict[str, Any]:
    return {"model": "inline/some/model", "endpoint": {"base_url": base_url, "api_key": CANARY}, **more}


async def kept(api: World, conversation_id: str) -> list[str]:
    """The names of everything that the conversation keeps sealed."""
    return sorted(orjson.loads(await api.redis.hget(keys.conversation(conversation_id), "secrets") or b"{}"))


async def opened(api: World, conversation_id: str) -> Mapping[str, str]:
    """What a step of the conversation's agent is given."""
    return await api.store.vault.opened(conversation_id, (await api.store.runs.conversation(conversation_id)).agent)


@pytest.mark.parametrize("base_url", ["https://api.example.com/v1", "http://127.0.0.1:8000/v1"])
async def test_an_endpoint_that_is_allowed_is_kept_without_its_key(base_url: str) -> None:
    async with world(ALLOWING) as api:
        run = await api.submit(agent=agent(base_url))
        kept = {"base_url": base_url, "api_key": None, "protocol": "chat_completions"}
        assert run["agent"]["endpoint"] == kept
        conversation = (await api.client.get(run["links"]["conversation"])).json()
        assert conversation["agent"]["endpoint"] == kept
        assert await opened(api, run["conversation_id"]) == {f"endpoint:{base_url}": CANARY}
        assert (await api.client.get(f"{run['links']['conversation']}/secrets")).json() == {"data": []}
        for name in await api.redis.keys("*"):
            assert CANARY.encode() not in (await api.redis.dump(name) or b""), name
        # What was read can be sent again.
        again = await api.submit(agent=conversation["agent"], conversation_id=run["conversation_id"])
        assert again["agent"]["endpoint"] == kept


@pytest.mark.slow
async def test_a_conversation_has_the_key_of_its_agent_and_no_other() -> None:
    async with world(ALLOWING) as api:
        made = (await api.client.post("/v1/conversations", json={"agent": agent()})).json()
        path = f"/v1/conversations/{made['id']}"
        assert list((await opened(api, made["id"])).values()) == [CANARY]
        for number in range(limit_of("secrets") + 1):
            changed = await api.client.patch(path, json={"agent": agent(f"http://127.0.0.1:8000/v{number}")})
            assert changed.status_code == 200, changed.text
            assert CANARY not in changed.text
        assert await kept(api, made["id"]) == [f"endpoint:http://127.0.0.1:8000/v{limit_of('secrets')}"]
        assert (await api.client.patch(f"{path}/secrets", json={"secrets": {"TOKEN": "x"}})).status_code < 300
        assert (await api.client.patch(path, json={"agent": None})).status_code == 200
        assert await kept(api, made["id"]) == ["TOKEN"]


@pytest.mark.slow
async def test_a_run_that_has_not_ended_keeps_its_key_and_takes_no_room_of_secrets() -> None:
    async with world(ALLOWING) as api:
        run = await api.submit(agent=agent())
        path = run["links"]["conversation"]
        for number in range(limit_of("secrets") + 1):
            changed = await api.client.patch(path, json={"agent": agent(f"http://127.0.0.1:8000/v{number}")})
            assert changed.status_code == 200, changed.text
        assert "endpoint:https://api.example.com/v1" in await kept(api, run["conversation_id"])
        assert (await api.client.patch(f"{path}/secrets", json={"secrets": {"TOKEN": "x"}})).status_code < 300
        await api.client.post(f"{run['links']['self']}/cancel")
        await api.submit(agent=agent(), conversation_id=run["conversation_id"])
        assert await kept(api, run["conversation_id"]) == ["TOKEN", "endpoint:https://api.example.com/v1"]


async def test_a_change_that_is_refused_leaves_the_key_as_it_was() -> None:
    async with world(ALLOWING) as api:
        made = (await api.client.post("/v1/conversations", json={"agent": agent()})).json()
        endpoint = {"base_url": "https://api.example.com/v1", "api_key": "sk-another"}
        wanted = {"agent": agent(endpoint=endpoint), "revision": 77}
        answer = await api.client.patch(f"/v1/conversations/{made['id']}", json=wanted)
        assert_problem(answer, 409, "conversation_revised")
        assert list((await opened(api, made["id"])).values()) == [CANARY]


async def test_a_fork_has_the_key_of_its_own_agent_alone() -> None:
    async with world(ALLOWING) as api:
        run = await api.submit(agent=agent())
        path = run["links"]["conversation"]
        await api.client.patch(path, json={"agent": agent("http://127.0.0.1:8000/v1")})
        fork = await api.client.post(f"{path}/fork", json={})
        assert fork.status_code == 201, fork.text
        assert await kept(api, fork.json()["id"]) == ["endpoint:http://127.0.0.1:8000/v1"]


@in_one_world(
    ["https://elsewhere.example.com", "http://127.0.0.1:6379", "http://169.254.169.254", "https://api.example.com:444"],
    ALLOWING,
)
async def test_one_that_is_not_allowed_is_refused(api: World, base_url: str) -> None:
    body = {"agent": agent(base_url), "input": "x"}
    for path in ("/v1/runs", "/v1/conversations"):
        answer = await api.client.post(path, json=body if path == "/v1/runs" else {"agent": body["agent"]})
        problem = assert_problem(answer, 422, "endpoint_not_allowed", "/agent/endpoint/base_url")
        assert "PALAVER_INLINE_PROVIDER_HOSTS" in problem["detail"]
        assert CANARY not in answer.text


async def test_without_the_setting_there_are_none() -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", json={"agent": agent(), "input": "x"})
        assert "it is not set" in assert_problem(answer, 422, "endpoint_not_allowed")["detail"]


async def test_without_a_secret_key_there_is_one_without_a_key() -> None:
    async with world(ALLOWING.model_copy(update={"secret_key": ()})) as api:
        answer = await api.client.post("/v1/runs", json={"agent": agent(), "input": "x"})
        assert_problem(answer, 422, "no_secret_key", "/agent/endpoint/api_key")
        await api.submit(agent=agent(endpoint={"base_url": "http://127.0.0.1:8000/v1"}))


@in_one_world([
        ({"endpoint": None}, "unknown_provider", "/agent/model"),
        ({"model": "fake/echo"}, "endpoint_not_allowed", "/agent/endpoint"),
        ({"seed": 7, "endpoint": {"base_url": "https://api.example.com", "protocol": "anthropic"}},
         "unsupported_option", "/agent/seed"),
        ({"endpoint": {"base_url": f"https://{CANARY}@api.example.com"}}, "validation_error",
         "/agent/endpoint/base_url"),
        ({"endpoint": {"base_url": "https://api.example.com", "api_key": ""}}, "validation_error",
         "/agent/endpoint/api_key"),
    ], ALLOWING)  # fmt: skip
async def test_what_does_not_fit_is_said(api: World, wrong: dict[str, Any], code: str, pointer: str) -> None:
    answer = await api.client.post("/v1/runs", json={"agent": {**agent(), **wrong}, "input": "x"})
    assert_problem(answer, 422, code, pointer)
    assert CANARY not in answer.text


async def test_what_no_worker_allows_is_refused() -> None:
    async with world(ALLOWING) as api:
        await api.redis.zadd("palaver:worker-providers", {"fake": 9e9})
        answer = await api.client.post("/v1/runs", json={"agent": agent(), "input": "x"})
        problem = assert_problem(answer, 422, "unknown_provider", "/agent/model")
        assert "PALAVER_INLINE_PROVIDER_HOSTS" in problem["detail"]


UNFIT = ["sk-x\r\nX-Evil: 1", "sk-\u65e5\u672c", "k\u00e9y", "    ", " sk-x", "sk-x ", "sk\tx", "sk-\x7f"]


@in_one_world(UNFIT, ALLOWING)
async def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(api: World, key: str) -> None:
    asked = agent()
    asked["endpoint"]["api_key"] = key
    answer = await api.client.post("/v1/runs", json={"agent": asked, "input": "hello"})
    problem = assert_problem(answer, 422, "validation_error")
    (fault,) = problem["errors"]
    assert fault["pointer"] == "/agent/endpoint/api_key"
    assert "no header can carry it" in fault["message"]
    assert not key.strip() or orjson.dumps(key)[1:-1].decode() not in answer.text


async def test_a_key_may_have_whatever_else_is_printed() -> None:
    async with world(ALLOWING) as api:
        for key in ("x", "a b", "~!@#$%^&*()_+={}[]|:;'<>,.?/", "Basic dXNlcjpwYXNz=="):
            asked = agent()
            asked["endpoint"]["api_key"] = key
            assert (await api.client.post("/v1/runs", json={"agent": asked, "input": "hello"})).status_code == 202, key
