"""The Model Context Protocol at the API: both eras of the wire, and the tools."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import orjson
import pytest

from features.mcp_server.states import SCHEMA
from features.mcp_server.tables import LIMITS
from features.mcp_server.tools import INSTRUCTIONS, tool_of
from palaver.config.settings import Settings
from palaver.schemas.models import Message
from palaver.schemas.schema_faults import tool_schema_faults
from palaver.secrets.redaction import register_secrets
from palaver.steps.verdicts import Finish
from palaver.version import __version__
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.unit.api_world import RUN_ID, World, call, world
from tests.unit.mcp_host import ACCEPT, MODERN, PREFIX, WITH_TASKS, Host, hosted, publish, run_of
from tests.waiting import aeventually

VERSIONS: Final = [MODERN, "2025-11-25", "2025-06-18", "2025-03-26"]
ERAS: Final = pytest.mark.parametrize("capabilities", [None, {}], ids=["legacy", "modern"])
FOUR: Final = ["run_start", "run_get", "run_answer", "run_cancel"]
KEY: Final = "key-of-the-desk-7f3a"
KEYED: Final = Settings(redis_url="redis://fake/0", api_keys=f"desk={KEY}")


def is_said(answer: httpx.Response) -> dict[str, Any]:
    """The data of an error, which every error has: the code of the problem, and the id of the request."""
    data: dict[str, Any] = answer.json()["error"]["data"]
    assert data["code"]
    assert data["request_id"] == answer.headers["x-request-id"]
    return data


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with hosted() as made:
        yield made


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [*((each, each) for each in VERSIONS[1:]), ("2024-11-05", "2025-11-25"), (MODERN, "2025-11-25")],
)
async def test_an_older_host_is_greeted_in_its_revision(api: World, asked: str, chosen: str) -> None:
    host = Host(api.client)
    params = {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
    answer = await host.send("initialize", params)
    result = answer.json()["result"]
    assert (answer.status_code, result["protocolVersion"]) == (200, chosen)
    assert (result["capabilities"], result["serverInfo"]["name"]) == ({"tools": {}}, "palaver")
    assert result["instructions"] == INSTRUCTIONS
    assert INSTRUCTIONS.count("\n") == 4
    assert "mcp-session-id" not in answer.headers
    assert await host.result("ping") == {}
    said = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    noted = await api.client.post("/mcp", json=said, headers={**ACCEPT, "mcp-protocol-version": chosen})
    assert (noted.status_code, noted.content) == (202, b"")
    listed = await api.client.post(
        "/mcp", json={"jsonrpc": "2.0", "id": 7, "method": "tools/list"}, headers={"mcp-protocol-version": chosen}
    )
    assert (listed.status_code, listed.json()["id"], set(listed.json()["result"])) == (200, 7, {"tools"})


async def test_a_newer_host_asks_what_there_is_or_does_not_ask(api: World) -> None:
    host = Host(api.client, {})
    assert await host.result("server/discover") == {
        "resultType": "complete",
        "supportedVersions": VERSIONS,
        "capabilities": {"tools": {}, "extensions": {f"{PREFIX}tasks": {}}},
        "instructions": INSTRUCTIONS,
        "ttlMs": 3_600_000,
        "cacheScope": "public",
        "_meta": {f"{PREFIX}serverInfo": {"name": "palaver", "title": "Palaver", "version": __version__}},
    }
    listed = await host.result("tools/list")
    assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", 60_000, "private")
    state = await host.call("agent_support", message="hello")
    assert state["resultType"] == "complete"


@pytest.mark.parametrize(
    ("headers", "meta", "status", "code"),
    [
        ({"mcp-method": "tools/call"}, {}, 400, -32020),
        ({"mcp-method": ""}, {}, 400, -32020),
        ({"mcp-protocol-version": "2025-11-25"}, {}, 400, -32020),
        ({"mcp-protocol-version": "1999-01-01"}, {"protocolVersion": "1999-01-01"}, 400, -32022),
        ({"mcp-protocol-version": "sk-secret"}, {"protocolVersion": "sk-secret"}, 400, -32022),
        ({}, {"protocolVersion": 7}, 400, -32602),
        ({}, {"clientCapabilities": None}, 400, -32602),
    ],
)
async def test_what_is_said_twice_has_to_be_the_same(
    api: World, headers: dict[str, str], meta: dict[str, Any], status: int, code: int
) -> None:
    params = {"_meta": {f"{PREFIX}{name}": value for name, value in meta.items()}}
    answer = await Host(api.client, {}).send("tools/list", params, **headers)
    assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (status, "1", code)
    assert is_said(answer)


@pytest.mark.parametrize("headers", [True, False], ids=["in both places", "in the header"])
@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("1999-01-01", True),
        ("v999.0.0", True),
        ("DRAFT-2027-v1+build/7", True),
        ("2024-11-05", True),
        ("sk-secret", False),
        ("plv_0123456789ab", False),
        ("eyJhbGciOiJIUzI1NiJ9", False),
        (KEY, False),
        ("two words", False),
        ("9" * 33, False),
    ],
)
async def test_a_revision_that_is_not_spoken_is_named_unless_it_may_be_a_key(
    asked: str, shown: bool, headers: bool
) -> None:
    register_secrets(KEYED.secrets)
    async with world(KEYED) as api:
        params = {"_meta": {f"{PREFIX}protocolVersion": asked}} if headers else {}
        host = Host(api.client, {} if headers else None, {"authorization": f"Bearer {KEY}"})
        answer = await host.send("tools/list", params, **{"mcp-protocol-version": asked})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)
    data = is_said(answer)
    assert (data["supported"], data["requested"]) == (VERSIONS, asked if shown else "no date")
    assert data["code"] == "unsupported_version"


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_an_older_revision_is_spoken_wherever_a_request_names_it(api: World, version: str) -> None:
    params = {"_meta": {f"{PREFIX}protocolVersion": version}}
    answer = await Host(api.client).send("tools/list", params, **{"mcp-protocol-version": version})
    assert answer.status_code == 200
    assert "resultType" not in answer.json()["result"]


@pytest.mark.parametrize(
    ("method", "params", "word"),
    [
        ("nothing/here", {}, "not_found"),
        ("tools/list", {"cursor": 7}, "validation_error"),
        ("tools/list", {"cursor": "x" * 2000}, "invalid_cursor"),
        ("tools/call", {"name": 7}, "validation_error"),
        ("tools/call", {"name": "agent_missing", "arguments": {"message": "x"}}, "not_found"),
        ("tools/call", {"name": "nothing"}, "not_found"),
        ("initialize", {}, "validation_error"),
    ],
)
@pytest.mark.parametrize("modern", [True, False])
async def test_every_error_has_the_code_of_the_problem_and_the_id_of_the_request(
    api: World, method: str, params: dict[str, Any], word: str, modern: bool
) -> None:
    headers = {"mcp-name": "7"} if params.get("name") == 7 else {}
    answer = await Host(api.client, {} if modern else None).send(method, params, **headers)
    if method == "initialize" and modern:
        word = "not_found"
    if headers and modern:
        word = "header_mismatch"
    assert is_said(answer)["code"] == word


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("run_get", True),
        (f"=?base64?{base64.b64encode(b'run_get').decode()}?=", True),
        ("run_start", False),
        ("", False),
        ("=?base64?!?=", False),
        (f"=?base64?{base64.b64encode(bytes([255])).decode()}?=", False),
    ],
)
async def test_the_name_of_a_tool_stands_in_a_header(api: World, name: str, fits: bool) -> None:
    params = {"name": "run_get", "arguments": {"run_id": RUN_ID}}
    answer = await Host(api.client, {}).send("tools/call", params, **{"mcp-name": name})
    assert answer.status_code == (200 if fits else 400)
    assert fits == ("result" in answer.json())


async def test_an_unknown_revision_without_more_is_refused_with_those_there_are(api: World) -> None:
    answer = await Host(api.client).send("tools/list", **{"mcp-protocol-version": "2027-01-01"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)
    answer = await Host(api.client).send("tools/list", **{"mcp-protocol-version": MODERN})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700),
        (b"", 400, -32700),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"nothing"}', 200, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"x"}}', 200, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}', 200, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize"}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing"}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"agent_missing","arguments":{"message":"x"}}}',
         200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_get","arguments":[]}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}', 200, -32602),
    ],
)  # fmt: skip
async def test_what_is_no_request_is_an_error_of_json_rpc(api: World, body: bytes, status: int, code: int) -> None:
    answer = await api.client.post("/mcp", content=body, headers={**ACCEPT, "content-type": "application/json"})
    told = answer.json()
    assert (answer.status_code, told["jsonrpc"], told["error"]["code"]) == (status, "2.0", code)
    # An id that could not be read is left out: older clients take none of null.
    assert told.get("id", 1) == 1
    assert "null" not in answer.text


async def test_an_unknown_method_is_not_found_for_newer_hosts(api: World) -> None:
    for method in ("nothing", "initialize", "ping", "resources/list"):
        answer = await Host(api.client, {}).send(method)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_there_is_no_session_and_no_stream(api: World, method: str) -> None:
    answer = await api.client.request(method, "/mcp", headers={"accept": "text/event-stream", "mcp-session-id": "x"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_what_is_too_large_or_no_json_is_refused(api: World) -> None:
    large = await api.client.post("/mcp", content=b" " * 70_000, headers={"content-type": "application/json"})
    text = await api.client.post("/mcp", content=b"{}", headers={"content-type": "text/plain"})
    stream = await api.client.post("/mcp", json={}, headers={"accept": "text/event-stream"})
    assert (large.status_code, text.status_code, stream.status_code) == (413, 415, 406)
    assert {each.json()["error"]["code"] for each in (large, text, stream)} == {-32600}


@ERAS
async def test_the_tools_are_four_and_one_for_each_agent(api: World, capabilities: Any) -> None:
    await publish(api, "v1.2")
    tools = (await Host(api.client, capabilities).result("tools/list"))["tools"]
    assert [tool["name"] for tool in tools] == [*FOUR, "agent_support", tool_of("v1.2")]
    hints = {tool["name"]: tool["annotations"] for tool in tools}
    assert (hints["run_start"]["destructiveHint"], hints["run_start"]["openWorldHint"]) == (True, True)
    assert hints["agent_support"] == hints["run_start"]
    assert (hints["run_get"]["readOnlyHint"], hints["run_get"]["idempotentHint"]) == (True, True)
    assert (hints["run_answer"]["idempotentHint"], hints["run_answer"]["destructiveHint"]) == (True, False)
    assert (hints["run_cancel"]["idempotentHint"], hints["run_cancel"]["destructiveHint"]) == (True, False)
    for tool in tools:
        assert not [*tool_schema_faults(tool["inputSchema"])], tool["name"]
        assert "$ref" not in str(tool), tool["name"]
        assert tool["outputSchema"] == orjson.loads(orjson.dumps(SCHEMA))
        assert tool["description"]
    properties = {tool["name"]: set(tool["inputSchema"]["properties"]) for tool in tools}
    assert properties["run_start"] == {"agent", "message", "conversation", "idempotency_key", "wait_s"}
    assert properties["agent_support"] == {"message", "conversation", "idempotency_key", "wait_s"}
    assert properties["run_get"] == {"run_id", "after", "wait_s"}
    assert properties["run_answer"] == {"run_id", "answers"}
    assert properties["run_cancel"] == {"run_id"}


def test_the_name_of_an_agent_becomes_that_of_a_tool() -> None:
    names = ["support", "a.b", "a_b", "a-b", "x" * 64, "x" * 63 + "y", "run_start", "a.b.c", "x" * 42, "x_00112233"]
    tools = [tool_of(name) for name in names]
    assert len({*tools}) == len(names)
    assert tools[0] == "agent_support"
    assert tools[3] == "agent_a-b"
    assert tools[-2] == f"agent_{'x' * 42}"
    for tool in tools:
        assert len(tool) <= 48
        assert tool.replace("_", "").replace("-", "").isalnum()


async def test_an_agent_with_a_long_name_is_found_by_its_tool(api: World) -> None:
    name = "an.agent." + "x" * 50
    for number in range(3):
        await publish(api, f"other-{number}")
    await publish(api, name)
    state = await Host(api.client).state(tool_of(name), message="hello")
    run = await run_of(api, state["run_id"])
    assert run["agent"]["name"] == name
    answer = await Host(api.client).send("tools/call", {"name": tool_of(f"{name}y"), "arguments": {"message": "x"}})
    assert answer.json()["error"]["code"] == -32602


async def test_a_long_list_comes_in_pages(api: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.mcp_server.tools._PAGE", 2)
    for number in range(4):
        await publish(api, f"other-{number}")
    host, found = Host(api.client, {}), []
    params: dict[str, Any] = {}
    while True:
        page = await host.result("tools/list", params)
        found += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    assert found == [*FOUR, *(f"agent_other-{number}" for number in range(4)), "agent_support"]
    answer = await host.send("tools/list", {"cursor": "x" * 5_000})
    assert answer.json()["error"]["code"] == -32602


@ERAS
async def test_a_run_is_started_followed_answered_and_over(api: World, capabilities: Any) -> None:
    host = Host(api.client, capabilities)
    result = await host.call("run_start", agent="support", message="hello")
    state = result["structuredContent"]
    assert orjson.loads(result["content"][0]["text"]) == state
    assert (result["isError"], state["status"], "result" in state) == (False, "working", False)
    run = await run_of(api, state["run_id"])
    await api.ask(run, call("call_1", "approval"), call("call_2", "client_tool"))
    state = await host.state("run_get", run_id=run["id"], wait_s=5)
    assert (state["status"], state["reason"], state["poll_after_ms"]) == ("input_required", "approval", 5_000)
    approval, output = state["actions"]
    assert (approval["kind"], approval["tool"], approval["arguments"]) == (
        "approval", "calculator", {"expression": "2+2"},
    )  # fmt: skip
    assert output["kind"] == "client_tool"
    answers = [
        {"action_id": approval["action_id"], "decision": "deny", "reason": "no"},
        {"action_id": output["action_id"], "content": {"lines": 12}},
    ]
    for _ in range(2):
        state = await host.state("run_answer", run_id=run["id"], answers=answers)
        assert (state["status"], "actions" in state) == ("working", False)
    await api.finish(run, "all done")
    state = await host.state("run_get", run_id=run["id"])
    assert (state["status"], state["reason"], state["result"]) == ("completed", "end_turn", "all done")
    assert "poll_after_ms" not in state
    assert "error" not in state
    again = await host.refused("run_answer", run_id=run["id"], answers=[{"action_id": "all", "decision": "approve"}])
    assert (again["code"], again["retryable"]) == ("conflict", False)
    on = await host.state("run_start", message="and then?", conversation=state["conversation"])
    assert (on["conversation"], on["run_id"] != run["id"]) == (state["conversation"], True)


async def test_a_cancel_may_be_repeated_and_comes_too_late_after_the_end(api: World) -> None:
    host = Host(api.client)
    state = await host.state("agent_support", message="hello")
    for _ in range(2):
        gone = await host.state("run_cancel", run_id=state["run_id"])
        assert (gone["status"], gone["reason"]) == ("cancelled", "cancelled")
    state = await host.state("agent_support", message="hello")
    await api.finish(await run_of(api, state["run_id"]))
    assert (await host.refused("run_cancel", run_id=state["run_id"]))["code"] == "conflict"


async def test_a_run_that_failed_is_a_call_that_succeeded(api: World) -> None:
    host = Host(api.client)
    state = await host.state("agent_support", message="hello")
    await api.fail(await run_of(api, state["run_id"]))
    state = await host.state("run_get", run_id=state["run_id"])
    assert (state["status"], state["reason"]) == ("failed", "error")
    assert set(state["error"]) == {"code", "message", "retryable", "user_action"}
    assert (state["error"]["retryable"], state["error"]["user_action"]) == (False, "settings")


@pytest.mark.parametrize(
    "reason", [StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER, StopReason.MAX_STEPS, StopReason.BUDGET]
)
async def test_a_limit_that_ended_a_run_is_its_error_and_its_answer_stays(api: World, reason: StopReason) -> None:
    host = Host(api.client)
    run = await run_of(api, (await host.state("agent_support", message="hello"))["run_id"])
    await api.store.steps.settle(await api.claim(run), Finish(Message(role="assistant", content="as far"), reason))
    state = await host.state("run_get", run_id=run["id"])
    assert (state["status"], state["reason"], state["result"]) == ("failed", reason, "as far")
    assert state["error"] == {
        "code": reason, "message": LIMITS[reason], "retryable": False, "user_action": "settings",
    }  # fmt: skip


async def test_all_that_waits_is_approved_again_when_something_else_does(api: World) -> None:
    host = Host(api.client)
    run = await run_of(api, (await host.state("agent_support", message="hello"))["run_id"])
    await api.ask(run, call("c1", "approval"))
    answers = [{"action_id": "all", "decision": "deny"}]
    for number in range(2, 4):
        state = await host.state("run_answer", run_id=run["id"], answers=answers)
        assert state["status"] == "working"
        waiting = await api.ask(run, call(f"c{number}", "approval"))
        assert len(waiting["pending_actions"]) == 1


@ERAS
async def test_waiting_ends_with_the_state_and_asks_nothing_meanwhile(api: World, capabilities: Any) -> None:
    host = Host(api.client, capabilities)
    starting = asyncio.create_task(host.state("agent_support", message="hello", wait_s=25))
    await aeventually(lambda: api.publisher.deliveries)
    run_id = api.publisher.deliveries[-1].run_id
    run = await run_of(api, run_id)
    lease = await api.claim(run)
    await aeventually(api.watched)
    assert not starting.done()
    await api.finish(run, "at once", lease=lease)
    assert (await starting)["result"] == "at once"


async def test_events_are_listed_behind_a_number_and_waited_for(api: World) -> None:
    host = Host(api.client)
    state = await host.state("agent_support", message="hello")
    run = await run_of(api, state["run_id"])
    lease = await api.claim(run)
    await api.say(lease, "a", "b", "c")
    first = await host.state("run_get", run_id=run["id"], after=0)
    types = [event["type"] for event in first["events"]]
    assert types
    assert not [each for each in types if each.endswith(".delta")]
    assert (first["next_after"] >= len(types), first["more_events"]) == (True, False)
    waiting = asyncio.create_task(host.state("run_get", run_id=run["id"], after=first["next_after"], wait_s=25))
    await aeventually(api.watched)
    await api.finish(run, lease=lease)
    then = await waiting
    assert [event["type"] for event in then["events"]][-1] == "run.finished"
    assert then["next_after"] > first["next_after"]
    assert (await host.refused("run_get", run_id=run["id"], after=10_000))["code"] == "invalid_input"


async def test_many_and_large_events_come_in_pieces(api: World, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(api.client)
    state = await host.state("agent_support", message="hello")
    run = await run_of(api, state["run_id"])
    await api.finish(run)
    whole = await host.state("run_get", run_id=run["id"], after=0)
    for name, size in (("_EVENTS", 1), ("_EVENT_BYTES", 1)):
        monkeypatch.setattr(f"features.mcp_server.calls.{name}", size)
        found: list[Any] = []
        after, more = 0, True
        while more:
            page = await host.state("run_get", run_id=run["id"], after=after)
            assert len(page["events"]) <= 1
            found += page["events"]
            after, more = page["next_after"], page["more_events"]
        assert (found, after) == (whole["events"], whole["next_after"])


@ERAS
async def test_a_start_with_a_key_is_one_start(api: World, capabilities: Any) -> None:
    host = Host(api.client, capabilities)
    one = await host.state("agent_support", message="hello", idempotency_key="k-1")
    two = await host.state("agent_support", message="hello", idempotency_key="k-1", wait_s=0)
    assert one["run_id"] == two["run_id"]
    params = {"name": "agent_support", "arguments": {"message": "hello"}, "_meta": {"palaver/idempotencyKey": "k-1"}}
    assert (await host.result("tools/call", params))["structuredContent"]["run_id"] == one["run_id"]
    assert (await host.refused("agent_support", message="other", idempotency_key="k-1"))["code"] == "conflict"
    params["_meta"] = {"palaver/idempotencyKey": 7}
    assert (await host.result("tools/call", params))["structuredContent"]["code"] == "invalid_input"


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("run_start", {"message": "x"}, "invalid_input"),
        ("run_start", {"message": "x", "agent": "nobody"}, "not_found"),
        ("run_start", {"message": "", "agent": "support"}, "invalid_input"),
        ("run_start", {"message": " ", "agent": "support"}, "invalid_input"),
        ("run_start", {"message": "x" * 65_537, "agent": "support"}, "invalid_input"),
        ("run_start", {"message": "x", "agent": {"model": "fake/echo"}}, "invalid_input"),
        ("run_start", {"message": "x", "agent": "support", "wait_s": 26}, "invalid_input"),
        ("run_start", {"message": "x", "agent": "support", "model": "x"}, "invalid_input"),
        ("run_start", {"message": "x", "conversation": "conv_00" + "0" * 26}, "not_found"),
        ("run_get", {"run_id": RUN_ID}, "not_found"),
        ("run_get", {"run_id": "x"}, "not_found"),
        ("run_get", {}, "invalid_input"),
        ("run_answer", {"run_id": RUN_ID, "answers": []}, "invalid_input"),
        ("run_answer", {"run_id": RUN_ID, "answers": [{"action_id": "a"}]}, "invalid_input"),
        ("run_answer", {"run_id": RUN_ID, "answers": [{"action_id": "a", "decision": "approve", "content": 1}]},
         "invalid_input"),
        ("run_answer", {"run_id": RUN_ID, "answers": [{"action_id": "a", "decision": "approve", "reason": "x"}]},
         "invalid_input"),
        ("run_answer", {"run_id": RUN_ID, "answers": [{"action_id": "a", "decision": "deny", "is_error": True}]},
         "invalid_input"),
        ("run_answer", {"run_id": RUN_ID, "answers": [{"action_id": "a", "decision": "deny"}]}, "not_found"),
        ("run_answer", {"run_id": RUN_ID, "answers": [{"action_id": "all", "response": "accept"}]}, "invalid_input"),
        ("run_answer", {"run_id": RUN_ID, "answers": [{"action_id": "a", "response": "decline", "content": {}}]},
         "invalid_input"),
        ("run_cancel", {"run_id": RUN_ID}, "not_found"),
    ],
)  # fmt: skip
async def test_a_refusal_says_what_is_wrong_to_the_model(
    api: World, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any], code: str
) -> None:
    if len(arguments.get("message", "")) > 65_000:
        monkeypatch.setitem(api.app.state.backend.settings.__dict__, "max_body", 1 << 20)
    refused = await Host(api.client).refused(tool, **arguments)
    assert (refused["code"], refused["retryable"]) == (code, False)
    assert refused["message"]
    assert "/conversation_id" not in refused["message"]
    assert "/input" not in refused["message"]


async def test_what_may_pass_is_worth_another_try(api: World, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(api.client)
    monkeypatch.setitem(api.app.state.backend.settings.__dict__, "max_watchers", 0)
    state = await host.state("agent_support", message="hello", wait_s=25)
    assert (await host.refused("run_get", run_id=state["run_id"], wait_s=1)) == {
        "code": "limit",
        "message": (await host.refused("run_get", run_id=state["run_id"], wait_s=1))["message"],
        "retryable": True,
    }


async def test_a_store_that_is_away_ends_the_request(api: World) -> None:
    host = Host(api.client)
    state = await host.state("agent_support", message="hello")
    api.server.connected = False
    answer = await host.send("tools/call", {"name": "run_cancel", "arguments": {"run_id": state["run_id"]}})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    told = answer.json()
    assert (told["id"], told["error"]["code"], told["error"]["data"]["code"]) == ("1", -32603, "unavailable")


async def test_a_run_that_waits_for_somebody_beside_other_work_wants_input(api: World) -> None:
    host = Host(api.client, WITH_TASKS)
    result = await host.call("agent_support", message="hello")
    run_id = result["taskId"]
    run = await api.ask(await run_of(api, run_id), call("c1", "approval"), call("c2"))
    assert run["status"] == RunStatus.RUNNING
    assert (await host.state("run_get", run_id=run_id))["status"] == "input_required"
