"""``GET /v1/tools``: what workers have, and who has it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from palaver.config.providers import Limits, Provider
from palaver.errors import ConfigurationError, ErrorClass, Failure
from palaver.operations.catalog import argument_faults
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.redis import fleet_keys, single_flight
from palaver.tools import ToolDeclaration, ToolSet, tool
from palaver.tools.builtin import clock
from palaver.vocabulary.limits import limit_of
from tests.unit.api_world import World, assert_problem, world


@tool(idempotent=True, risky=True, timeout=7)
def send(to: str) -> str:
    """Send something."""
    return to


FAKE = "provider:fake"
"""What no worker has, of an agent that calls `fake/…`."""


async def _worker(api: World, name: str, *declarations: ToolDeclaration) -> None:
    tools = ToolSet.of(declarations)
    await api.store.tools.publish(tools, ("tools",))
    await api.store.fleet.report(WorkerReport(name, ("tools",), 0, 1, draining=False, tools=tools.digest))


async def _listed(api: World) -> list[dict[str, Any]]:
    answer = await api.client.get("/v1/tools")
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def test_a_tool_is_shown_as_its_workers_declare_it() -> None:
    async with world(tools=()) as api:
        assert await _listed(api) == []
        for name in ("w2", "w1"):
            await _worker(api, name, send.declaration)
        (listed,) = await _listed(api)
        seen_at = datetime.fromisoformat(listed.pop("seen_at"))
        assert timedelta() <= datetime.now(UTC) - seen_at < timedelta(minutes=5)
        assert listed == (
            {
                "name": "send",
                "description": "Send something.",
                "parameters": send.parameters,
                "idempotent": True,
                "inline": False,
                "risky": True,
                "ends_run": False,
                "timeout": 7.0,
                "max_result": None,
                "queue": None,
                "retry": None,
                "limit_key": None,
                "max_in_flight": None,
                "per_minute": None,
                "workers": ["w1", "w2"],
            }
        )


async def test_versions_of_a_tool_are_told_apart_and_what_is_the_same_is_one() -> None:
    newer = send.declaration.model_copy(update={"description": "Send it."})
    builtin = clock.declaration
    async with world(tools=()) as api:
        await _worker(api, "old", send.declaration, builtin)
        await _worker(api, "new", newer, builtin)
        found = {(each["name"], each["description"]): each["workers"] for each in await _listed(api)}
        assert found == {
            ("clock", builtin.description): ["new", "old"],
            ("send", "Send something."): ["old"],
            ("send", "Send it."): ["new"],
        }


async def test_a_tool_whose_workers_have_gone_has_none() -> None:
    async with world(tools=()) as api:
        await _worker(api, "w1", send.declaration)
        await api.store.fleet.leave("w1")
        assert [(each["name"], each["workers"]) for each in await _listed(api)] == [("send", [])]


@pytest.mark.parametrize("too_large", [False, True])
def test_more_than_can_be_told_is_refused_when_the_worker_starts(too_large: bool) -> None:
    size = limit_of("declared_tools_bytes") if too_large else 1
    number = 1 if too_large else limit_of("declared_tools") + 1
    tools = [ToolDeclaration(name=f"t{n}", description="x" * size, timeout=1) for n in range(number)]
    with pytest.raises(ConfigurationError, match="give some to other workers"):
        ToolSet.of(tools)


async def _submit(api: World, *tools: str) -> httpx.Response:
    return await api.client.post("/v1/runs", json={"input": "hi", "agent": {"model": "fake/echo", "tools": tools}})


@pytest.mark.parametrize("tools", [("send",), ()], ids=["a tool", "no tools"])
async def test_a_store_that_never_had_a_worker_takes_runs(tools: tuple[str, ...]) -> None:
    async with world(tools=()) as api:
        answer = await _submit(api, *tools)
        assert answer.status_code == 202, answer.text
        run = answer.json()
        assert (run["status"], run["waiting"]["reason"], run["waiting"]["code"]) == ("queued", "no_worker", FAKE)
        assert (await api.read(run))["waiting"] == run["waiting"]
        event = (await api.store.feeds.page(run["id"]))[-1]
        assert (event.type, event.data["reason"], event.data["code"]) == ("run.waiting", "no_worker", FAKE)
        more = {"input": "again", "conversation_id": run["conversation_id"], "on_conflict": "enqueue"}
        behind = await api.client.post("/v1/runs", json=more)
        assert behind.json()["waiting"]["reason"] == "conversation_busy"
        await api.claim(run)
        assert (await api.read(run))["waiting"] is None


@pytest.mark.parametrize("queues", [("model",), ("model", "tools")], ids=str)
async def test_a_model_worker_does_not_know_which_tools_there_are(queues: tuple[str, ...]) -> None:
    """It has few itself, and was started before the tools workers: these will say."""
    async with world(tools=()) as api:
        for queue in queues:
            await api.store.tools.publish(ToolSet.of([clock.declaration]), (queue,))
        answer = await _submit(api, "send")
        if queues == ("model",):
            assert answer.status_code == 202
        else:
            assert "there are: clock" in assert_problem(answer, 422, "unknown_tool", "/agent/tools/0")["detail"]


async def test_so_does_a_conversation_that_has_its_agent() -> None:
    async with world(tools=()) as api:
        begun = await api.client.post("/v1/conversations", json={"agent": {"model": "fake/echo", "tools": ["send"]}})
        assert begun.status_code == 201, begun.text
        answer = await api.client.post("/v1/runs", json={"input": "hi", "conversation_id": begun.json()["id"]})
        assert answer.json()["waiting"]["code"] == FAKE


async def test_without_a_worker_a_tool_named_twice_is_refused_all_the_same() -> None:
    async with world(tools=()) as api:
        assert_problem(await _submit(api, "send", "send"), 422, "duplicate_tool", "/agent/tools/1")


async def test_what_the_last_workers_had_is_known_and_what_they_had_not_is_refused() -> None:
    async with world(tools=()) as api:
        await _worker(api, "w1", send.declaration)
        await api.store.fleet.leave("w1")
        assert (await _submit(api, "send")).json()["waiting"]["code"] == FAKE
        assert_problem(await _submit(api, "forecast"), 422, "unknown_tool")


async def test_a_tool_that_no_worker_has_is_refused_with_those_that_there_are() -> None:
    async with world(tools=()) as api:
        await _worker(api, "w1", send.declaration)
        problem = assert_problem(await _submit(api, "forecast"), 422, "unknown_tool", "/agent/tools/0")
        assert "no worker has; there are: send" in problem["detail"]


async def test_what_was_known_is_used_again_for_two_seconds_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(single_flight, "time", SimpleNamespace(monotonic=lambda: now))
    async with world(tools=()) as api:
        await _worker(api, "w1", send.declaration)
        assert (await _submit(api, "send")).status_code == 202
        await _worker(api, "w2", clock.declaration)
        assert_problem(await _submit(api, "clock"), 422, "unknown_tool")
        now += 2.0
        assert (await _submit(api, "clock")).status_code == 202


TO = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"], "additionalProperties": False}
WHOM = {"type": "object", "properties": {"whom": {"type": "string"}}, "required": ["whom"]}


def _versions(*schemas: dict[str, Any]) -> list[ToolDeclaration]:
    return [ToolDeclaration(name="send", description="", parameters=schema, timeout=1) for schema in schemas]


@pytest.mark.parametrize(
    ("schemas", "arguments", "faults"),
    [
        ([TO], {"to": "bob"}, []),
        ([TO], {}, ["/to is required"]),
        ([TO], {"to": 5}, ['/to is not of type "string"']),
        ([TO], {"to": "bob", "too": "secret"}, ["/too is not a parameter; did you mean 'to'?"]),
        ([TO, WHOM], {"to": "bob"}, []),
        ([TO, WHOM], {"whom": "bob"}, []),
        ([TO, WHOM], {"who": "bob"}, ["/to is required", "/who is not a parameter"]),
        ([{"properties": {"a/b": {"properties": {"c": {"maximum": 3}}}}}], {"a/b": {"c": 4}}, ["/a~1b/c is greater"]),
        ([{"$ref": "http://127.0.0.1:1/elsewhere"}], {"to": "bob"}, []),
        ([{"type": 5}], {"to": "bob"}, []),
    ],
)
def test_arguments_fit_one_of_the_versions_or_the_newest_says_why_not(
    schemas: list[dict[str, Any]], arguments: dict[str, Any], faults: list[str]
) -> None:
    found = [f"{fault.pointer} {fault.message}" for fault in argument_faults(_versions(*schemas), arguments)]
    assert len(found) == len(faults), found
    assert all(told.startswith(expected) for told, expected in zip(sorted(found), faults, strict=True)), found
    assert not any("secret" in told for told in found)


async def test_a_provider_that_no_worker_can_call_is_refused_once_workers_have_told() -> None:
    providers = {name: Provider(base_url="http://127.0.0.1:1/v1") for name in ("fake", "other")}
    async with world(providers=providers) as api:
        body = {"agent": {"model": "fake/echo", "fallbacks": ["other/echo"]}, "input": "hello"}
        assert (await api.client.post("/v1/runs", json=body)).status_code == 202
        await api.store.fleet.report(WorkerReport("w", ("model",), 0, 1, draining=False, providers=("fake",)))
        problem = assert_problem(await api.client.post("/v1/runs", json=body), 422, "unknown_provider")
        (fault,) = problem["errors"]
        assert fault["pointer"] == "/agent/fallbacks/0"
        assert "no worker can call" in fault["message"]
        assert fault["message"].endswith("they can call: fake")


async def test_no_provider_is_refused_while_an_older_worker_does_not_tell_what_it_can_call() -> None:
    providers = {name: Provider(base_url="http://127.0.0.1:1/v1") for name in ("fake", "other")}
    async with world(providers=providers) as api:
        for name in ("new", "old"):
            await api.store.fleet.report(WorkerReport(name, ("model",), 0, 1, draining=False, providers=("fake",)))
        await api.redis.hdel(fleet_keys.worker("old"), "providers")
        body = {"agent": {"model": "other/echo"}, "input": "hello"}
        assert (await api.client.post("/v1/runs", json=body)).status_code == 202


async def test_services_of_tools_show_what_holds_their_calls_up() -> None:
    crm, free = (
        send.declaration.model_copy(update={"name": name, "limit_key": key, "max_in_flight": most})
        for name, key, most in (("order", "crm", 1), ("look_up", "search", None))
    )
    again = send.declaration.model_copy(update={"name": "refund", "limit_key": "crm"})
    async with world(tools=()) as api:
        await _worker(api, "w1", crm, free, again, clock.declaration)
        providers = api.store.providers
        await providers.cool_down("tool:search", 30)
        await providers.admit("tool:crm", "c9", Limits(max_in_flight=1), 0)
        for number in range(5):
            await providers.report_failure(
                "tool:crm", f"c{number}", Failure.of(ErrorClass.CONNECTION), counts_as=f"c{number}", answered=None
            )
        shown, search = (await api.client.get("/v1/queues")).json()["services"]
        (outage,) = shown.pop("outages")
        assert (outage["model"], outage["error_class"]) == (None, "connection")
        assert shown == {
            "name": "crm",
            "tools": ["order", "refund"],
            "cooling_until": None,
            "waiting": 1,
            "in_flight": 1,
            "max_in_flight": 1,
            "calls_last_minute": 1,
            "per_minute": None,
        }
        assert datetime.fromisoformat(search["cooling_until"]) > datetime.now(UTC)
        assert (search["outages"], search["in_flight"], search["calls_last_minute"]) == ([], None, None)
