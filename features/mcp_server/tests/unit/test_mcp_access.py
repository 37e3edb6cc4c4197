"""The bounds of a caller at the Model Context Protocol: keys, scopes, conversations, tenants, pages; and the trace."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import httpx
import pytest

from features.oidc.tests.unit.local_issuer import local_issuer
from palaver.vocabulary.ids import new_conversation_id, new_run_id
from palaver.vocabulary.scopes import SCOPES, Scope
from tests.unit.api_world import RUN_ID, SETTINGS, World, call, world
from tests.unit.mcp_host import WITH_TASKS, Host, hosted, run_of
from tests.unit.test_api_scopes import bearer
from tests.unit.two_tenants import TENANTS, Belongings, asking_as, counting, furnish, tenants

CLOSED: Final = SETTINGS.model_copy(update={"require_keys": True})
METADATA: Final = "/.well-known/oauth-protected-resource/mcp"
_CALLS: Final[list[tuple[str, dict[str, Any], set[Scope]]]] = [
    ("run_start", {"agent": "support", "message": "x"}, {"runs:submit"}),
    ("agent_support", {"message": "x"}, {"runs:submit"}),
    ("run_get", {"run_id": RUN_ID}, {"runs:read"}),
    ("run_cancel", {"run_id": RUN_ID}, {"runs:act"}),
    ("run_answer", {"run_id": RUN_ID, "answers": [{"action_id": "all", "decision": "approve"}]}, {"actions:approve"}),
    ("run_answer", {"run_id": RUN_ID, "answers": [{"action_id": "act_1", "content": "x"}]}, {"runs:act"}),
]
_TASKS: Final[list[tuple[str, dict[str, Any], set[Scope]]]] = [
    ("tasks/get", {"taskId": RUN_ID}, {"runs:read"}),
    ("tasks/update", {"taskId": RUN_ID, "inputResponses": {}}, {"runs:act", "actions:approve"}),
    ("tasks/cancel", {"taskId": RUN_ID}, {"runs:act"}),
]


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with hosted() as made:
        made.app.state.access = replace(
            made.app.state.access, keys=type(made.app.state.access.keys)(CLOSED, made.app.state.access.keys.stored)
        )
        yield made


@pytest.mark.parametrize("scope", ["runs:submit", "runs:read", "runs:act", "actions:approve"])
async def test_each_tool_needs_its_scope(api: World, scope: Scope) -> None:
    host = Host(api.client, WITH_TASKS, await bearer(api, scopes=frozenset({scope})))
    for method, params, scopes in [
        *(("tools/call", {"name": name, "arguments": arguments}, scopes) for name, arguments, scopes in _CALLS),
        *_TASKS,
    ]:
        answer = await host.send(method, params)
        if scope in scopes:
            assert answer.status_code == 200, (params, answer.text)
            continue
        assert answer.status_code == 403, (params, answer.text)
        told = answer.json()
        assert (told["id"], told["error"]["data"]["code"]) == ("1", "insufficient_scope")
        how = answer.headers["www-authenticate"]
        assert 'error="insufficient_scope"' in how
        assert any(each in how for each in scopes)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, ["run_start", "run_get", "run_answer", "run_cancel", "agent_other", "agent_support"]),
        ({"scopes": frozenset({"runs:read"})}, ["run_get"]),
        ({"scopes": frozenset({"actions:approve"})}, ["run_answer"]),
        ({"scopes": frozenset({"runs:submit"}), "agents": frozenset({"other"})}, ["run_start", "agent_other"]),
        (
            {"conversation": "conv_00" + "0" * 26},
            ["run_start", "run_get", "run_answer", "run_cancel"],
        ),
    ],
)
async def test_a_list_has_the_tools_that_the_key_is_for(api: World, fields: dict[str, Any], shown: list[str]) -> None:
    headers = await bearer(api, **fields)
    await api.client.put("/v1/agents/other", json={"model": "fake/echo"}, headers=await bearer(api))
    result = await Host(api.client, {}, headers).result("tools/list")
    assert [tool["name"] for tool in result["tools"]] == shown


async def test_a_key_for_some_agents_starts_no_other(api: World) -> None:
    host = Host(api.client, None, await bearer(api, agents=frozenset({"other"})))
    for tool, arguments in (("run_start", {"agent": "support"}), ("agent_support", {})):
        refused = await host.refused(tool, message="x", **arguments)
        assert (refused["code"], refused["retryable"]) == ("not_allowed", False)


async def test_a_key_that_is_held_to_a_conversation_stays_there(api: World) -> None:
    everything = Host(api.client, WITH_TASKS, await bearer(api))
    mine, other = [(await everything.call("agent_support", message="x"))["taskId"] for _ in range(2)]
    api.client.headers.update(await bearer(api))
    conversation = (await run_of(api, mine))["conversation_id"]
    host = Host(api.client, WITH_TASKS, await bearer(api, conversation=conversation))
    plain = Host(api.client, None, host.headers)
    assert (await plain.state("run_get", run_id=mine))["run_id"] == mine
    assert (await plain.state("run_start", message="on", conversation=conversation))["conversation"] == conversation
    answer = await host.send("tools/call", {"name": "agent_support", "arguments": {"message": "new"}})
    assert (answer.status_code, answer.json()["error"]["data"]["code"]) == (403, "insufficient_scope")
    for name, arguments in (
        ("run_get", {}),
        ("run_cancel", {}),
        ("run_answer", {"answers": [{"action_id": "all", "decision": "approve"}]}),
    ):
        seen = [
            (await plain.send("tools/call", {"name": name, "arguments": {"run_id": each, **arguments}})).text.replace(
                each, "ID"
            )
            for each in (other, new_run_id("00"))
        ]
        assert seen[0] == seen[1]
        assert '"isError":true' in seen[0]
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        for each in (other, new_run_id("00")):
            answer = await host.send(method, {"taskId": each, "inputResponses": {}})
            data = {"code": "run_not_found", "request_id": answer.headers["x-request-id"]}
            assert answer.json()["error"] == {"code": -32602, "message": "There is no such task.", "data": data}
    assert (await run_of(api, other))["status"] == "queued"


def _tries(has: Belongings, run_id: str, conversation: str, agent: str) -> list[tuple[str, dict[str, Any]]]:
    """Requests that name a run, a conversation and an agent."""
    action = has.values["action"][0]
    answers = [
        [{"action_id": "all", "decision": "approve"}],
        [{"action_id": action, "decision": "deny"}],
        [{"action_id": action, "content": "x"}],
    ]
    calls = [
        ("run_get", {"run_id": run_id}),
        ("run_get", {"run_id": run_id, "after": 0}),
        ("run_get", {"run_id": run_id, "wait_s": 25}),
        ("run_get", {"run_id": run_id, "after": 10_000, "wait_s": 25}),
        ("run_cancel", {"run_id": run_id}),
        *(("run_answer", {"run_id": run_id, "answers": each}) for each in answers),
        ("run_start", {"message": "x", "conversation": conversation}),
        ("run_start", {"message": "x", "conversation": conversation, "agent": agent}),
        ("run_start", {"message": "x", "agent": agent}),
        ("run_start", {"message": "x", "agent": f"{agent}@1"}),
        (f"agent_{agent}", {"message": "x"}),
    ]
    responses = {action: {"action": "accept", "content": {"approve": True}}}
    return [
        *(("tools/call", {"name": name, "arguments": arguments}) for name, arguments in calls),
        ("tasks/get", {"taskId": run_id}),
        ("tasks/update", {"taskId": run_id, "inputResponses": responses}),
        ("tasks/cancel", {"taskId": run_id}),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("capabilities", [None, WITH_TASKS], ids=["legacy", "tasks"])
@pytest.mark.parametrize(("victim", "attacker"), [("acme", "globex"), ("default", "globex"), ("acme", "default")])
async def test_what_is_anothers_is_answered_by_the_same_bytes_as_what_is_not_there(
    victim: str, attacker: str, capabilities: Any
) -> None:
    async with tenants() as api:
        has = await furnish(api, victim)
        host, tried = Host(api.client, capabilities), 0
        tag, agent = TENANTS[victim], has.values["agent"][0]
        nobody = agent[:-1] + "x"
        for run_id, conversation in zip(has.values["run"], has.values["conversation"], strict=True):
            before = (await api.redis.dbsize(), [await api.redis.dump(key) for key in await api.redis.keys("*run_*")])
            known = _tries(has, run_id, conversation, agent)
            unknown = _tries(has, new_run_id("00", tag), new_conversation_id(1, "00", tag), nobody)
            for mine, none in zip(known, unknown, strict=True):
                seen = []
                for method, params in (mine, none):
                    commands: list[str] = []
                    with asking_as(api, attacker), counting(commands):
                        answer = await host.send(method, params)
                    names = (run_id, conversation, agent, *_names(none[1]), answer.headers["x-request-id"])
                    headers = {
                        name: value for name, value in answer.headers.items() if name not in ("x-request-id", "date")
                    }
                    seen.append((answer.status_code, headers, _without(answer.text, *names), commands))
                assert seen[0] == seen[1], mine
                assert "error" in seen[0][2] or '"isError":true' in seen[0][2], mine
                assert not [name for name in has.names if name in seen[0][2]]
                tried += 1
            after = (await api.redis.dbsize(), [await api.redis.dump(key) for key in await api.redis.keys("*run_*")])
            assert after == before
        assert tried == 32
        with asking_as(api, attacker):
            tools = (await host.result("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == ["run_start", "run_get", "run_answer", "run_cancel"]


def _names(params: Any) -> list[str]:
    """All texts of a request."""
    match params:
        case str():
            return [params]
        case dict():
            return [text for value in params.values() for text in _names(value)]
        case list():
            return [text for value in params for text in _names(value)]
    return []


def _without(text: str, *names: str) -> str:
    for name in sorted({name for name in names if len(name) > 8}, key=len, reverse=True):
        text = text.replace(name, "NAME")
    return text


async def test_without_a_key_nothing_is_told_and_how_to_get_one(api: World) -> None:
    host = Host(api.client)
    answer = await host.send("initialize", {"protocolVersion": "2025-11-25"})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="palaver"')
    told = answer.json()
    assert (told["error"]["code"], told["error"]["data"]["code"]) == (-32600, "unauthenticated")
    # It was not read.
    assert "id" not in told
    answer = await host.send("tools/list", authorization="Bearer plv_000000000000_x")
    assert (answer.status_code, answer.json()["error"]["data"]["code"]) == (401, "invalid_token")
    assert (await api.client.get(METADATA)).status_code == 404


async def test_pages_of_others_and_other_names_are_refused() -> None:
    async with hosted() as api:
        host = Host(api.client)
        for headers, code in (
            ({"origin": "http://evil.example"}, "origin_not_allowed"),
            ({"sec-fetch-site": "cross-site"}, "origin_not_allowed"),
            ({"host": "evil.example"}, "host_not_allowed"),
        ):
            answer = await host.send("tools/list", **headers)
            assert (answer.status_code, answer.json()["error"]["data"]["code"]) == (403, code)
        assert (await host.send("tools/list", origin="http://127.0.0.1:6274")).status_code == 200


@pytest.mark.parametrize(
    ("url", "root", "resource", "metadata"),
    [
        (None, "", "http://127.0.0.1/mcp", f"http://127.0.0.1{METADATA}"),
        (None, "/palaver", "http://127.0.0.1/palaver/mcp", f"http://127.0.0.1/palaver{METADATA}"),
        ("https://agents.example/p/mcp", "", "https://agents.example/p/mcp", f"https://agents.example/p{METADATA}"),
    ],
)
async def test_with_an_issuer_it_says_where_to_get_a_token(
    monkeypatch: pytest.MonkeyPatch, url: str | None, root: str, resource: str, metadata: str
) -> None:
    if url is not None:
        monkeypatch.setenv("PALAVER_MCP_URL", url)
    async with local_issuer() as there, world(there.settings()) as api:
        client = api.client
        assert isinstance(client._transport, httpx.ASGITransport)
        client._transport.root_path = root
        found = await client.get(METADATA)
        assert found.status_code == 200
        assert found.json() == {
            "resource": resource,
            "authorization_servers": [there.settings().oidc_issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": [*SCOPES],
            "resource_name": "Palaver",
        }
        answer = await Host(client).send("tools/list")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == f'Bearer resource_metadata="{metadata}", realm="palaver"'


@pytest.mark.parametrize("url", ["ftp://x/mcp", "https://x/other", 'https://x"/mcp ', "x"])
async def test_an_address_that_is_none_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PALAVER_MCP_URL", url)
    with pytest.raises(Exception, match="PALAVER_MCP_URL"):
        async with hosted():
            pass


async def test_acts_leave_the_trace_that_those_of_the_native_dialect_leave(
    api: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "palaver.audit")
    headers = await bearer(api, name="host", scopes=frozenset(SCOPES))
    host = Host(api.client, None, headers)
    api.client.headers.update(headers)
    await host.result("tools/list")
    await host.result("initialize", {"protocolVersion": "2025-11-25"})
    run_id = (await host.state("agent_support", message="x"))["run_id"]
    await host.state("run_get", run_id=run_id)
    await api.ask(await run_of(api, run_id), call("c1", "approval"))
    await host.state("run_answer", run_id=run_id, answers=[{"action_id": "all", "decision": "deny"}])
    await host.refused("run_answer", run_id=run_id, answers=[{"action_id": "all", "decision": "deny", "reason": "x"}])
    await host.state("run_cancel", run_id=run_id)
    await host.refused("run_cancel", run_id=RUN_ID)
    lines = [record.fields for record in caplog.records if record.name == "palaver.audit"]  # type: ignore[attr-defined]
    shown = ("operation", "tool", "run", "items", "mode", "key")
    assert [{name: line.get(name) for name in shown} for line in lines] == [
        {"operation": "mcp_call", "tool": "run_answer", "run": run_id, "items": ["approval deny"], "mode": None,
         "key": "host"},
        {"operation": "mcp_call", "tool": "run_cancel", "run": run_id, "items": None, "mode": "now", "key": "host"},
    ]  # fmt: skip
    kept = (await api.client.get("/v1/audit", headers=await bearer(api))).json()["data"]
    acts = [act for act in kept if act["operation"] == "mcp_call"]
    assert [act["facts"].get("tool", act["facts"].get("created")) for act in acts] == [
        run_id,
        "run_answer",
        "run_cancel",
    ]
