"""Agents on the server: kept under a name, named by runs, and keys that are for some of them alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from palaver import operations
from palaver.errors import Refused, StateConflict, UnknownAgent
from palaver.operations import Caller
from palaver.operations.admission.judging.agents import kept_faults
from palaver.schemas.actions import Steering
from palaver.schemas.agents import NewAgent
from palaver.schemas.conversation import ConversationPatch, Fork, NewConversation
from palaver.schemas.models import AgentSpec, Retry, Submission
from tests.unit.api_world import AGENT, World, assert_problem, in_one_world, world

OTHER = {**AGENT, "instructions": "Be brief."}


async def keep(api: World, name: str = "support", agent: dict[str, Any] = AGENT, headers: Any = None) -> dict[str, Any]:
    answer = await api.client.put(f"/v1/agents/{name}", json=agent, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    kept: dict[str, Any] = answer.json()
    return kept


async def test_one_is_put_read_listed_and_removed() -> None:
    async with world() as api:
        made = await api.client.put("/v1/agents/support", json=AGENT)
        assert (made.status_code, made.headers["etag"]) == (201, '"1"')
        assert made.headers["location"] == "/v1/agents/support"
        assert (made.json()["name"], made.json()["version"]) == ("support", 1)
        assert (made.json()["agent"]["name"], made.json()["agent"]["version"]) == ("support", 1)
        same = await api.client.put("/v1/agents/support", json={**AGENT, "name": "support"})
        assert (same.status_code, same.json()) == (200, made.json())
        newer = await api.client.put("/v1/agents/support", json=OTHER)
        assert (newer.status_code, newer.headers["etag"], newer.json()["newest"]) == (200, '"2"', 2)
        assert (await api.client.get("/v1/agents/support")).json() == newer.json()
        old = await api.client.get("/v1/agents/support@1")
        assert old.json() == {**made.json(), "newest": 2}
        await keep(api, "billing")
        first = await api.client.get("/v1/agents?limit=1")
        assert [agent["name"] for agent in first.json()["data"]] == ["billing"]
        rest = await api.client.get(first.headers["link"].partition(">")[0][1:])
        assert [agent["name"] for agent in rest.json()["data"]] == ["support"]
        assert not rest.json()["has_more"]
        assert (await api.client.delete("/v1/agents/support")).status_code == 204
        assert_problem(await api.client.get("/v1/agents/support"), 404, "agent_not_found")
        assert_problem(await api.client.get("/v1/agents/billing@9"), 404, "agent_not_found")
        assert_problem(await api.client.delete("/v1/agents/support"), 404, "agent_not_found")


async def test_preconditions() -> None:
    async with world() as api:
        absent = await api.client.put("/v1/agents/support", json=AGENT, headers={"If-Match": "*"})
        assert_problem(absent, 412, "agent_changed")
        await keep(api, headers={"If-None-Match": "*"})
        assert (await keep(api, agent=OTHER, headers={"If-Match": '"1"'}))["version"] == 2
        late = await api.client.put("/v1/agents/support", json=AGENT, headers={"If-Match": '"1"'})
        assert "its newest version is 2" in assert_problem(late, 412, "agent_changed")["detail"]
        late = await api.client.delete("/v1/agents/support", headers={"If-Match": '"1"'})
        assert_problem(late, 412, "agent_changed")
        for header in ({"If-Match": "2"}, {"If-Match": '"2", "3"'}, {"If-Match": '"2"', "If-None-Match": "*"}):
            answer = await api.client.put("/v1/agents/support", json=AGENT, headers=header)
            assert_problem(answer, 400, "invalid_precondition")


@in_one_world(
    [
        ("support", {**AGENT, "tools": ["calculater"]}, "unknown_tool", "/tools/0"),
        ("support", {**AGENT, "name": "billing"}, "validation_error", "/name"),
        ("support", {**AGENT, "version": 3}, "unknown_agent", "/version"),
        ("support", {"model": "nobody/x"}, "unknown_provider", "/model"),
        ("support", {"model": "x"}, "validation_error", "/model"),
        ("support", {"model": "fake/x", "instructions": "é" * 140_000}, "payload_too_large", None),
        ("-support", AGENT, "validation_error", "/name"),
        ("support@1", AGENT, "validation_error", "/name"),
    ]
)
async def test_what_does_not_fit_is_refused(
    api: World, name: str, body: dict[str, Any], code: str, pointer: str | None
) -> None:
    answer = await api.client.put(f"/v1/agents/{name}", json=body)
    assert_problem(answer, answer.status_code, code, *([pointer] if pointer else []))


async def test_a_key_of_an_endpoint_is_not_kept() -> None:
    endpoint = {"base_url": "http://models.example.com/v1", "api_key": "sk-secret"}
    async with world() as api:
        body = {"model": "inline/x", "endpoint": endpoint}
        answer = await api.client.put("/v1/agents/support", json=body)
        pointers = [fault["pointer"] for fault in answer.json()["errors"]]
        assert "/endpoint/api_key" in pointers
        assert "sk-secret" not in answer.text


async def test_a_run_names_one_and_records_its_version() -> None:
    async with world() as api:
        await keep(api)
        first = await api.submit(agent="support")
        assert (first["agent"]["name"], first["agent"]["version"]) == ("support", 1)
        assert first["agent"]["tools"] == ["calculator"]
        await keep(api, agent=OTHER)
        newer = await api.submit(agent="support")
        assert (newer["agent"]["version"], newer["agent"]["instructions"]) == (2, "Be brief.")
        old = await api.submit(agent="support@1")
        assert (old["agent"]["version"], old["agent"]["instructions"]) == (1, "")
        inline = await api.submit(agent={**AGENT, "name": "support"})
        assert inline["agent"]["version"] is None
        for wanted, runs in (("support", 4), ("support@1", 2), ("support@2", 1), ("support@3", 0)):
            listed = await api.client.get("/v1/runs", params={"agent": wanted})
            assert len(listed.json()["data"]) == runs, wanted
        assert (await api.read(first))["agent"]["version"] == 1


async def test_a_name_that_is_none_is_refused_with_a_sentence() -> None:
    async with world() as api:
        await keep(api)
        for name in ("nobody", "support@2"):
            answer = await api.client.post("/v1/runs", json={"agent": name, "input": "hello"})
            assert_problem(answer, 422, "unknown_agent", "/agent")
        answer = await api.client.post("/v1/runs", json={"agent": "no such name", "input": "hello"})
        problem = assert_problem(answer, 422, "validation_error", "/agent")
        assert "support@7" in problem["errors"][0]["message"]
        answer = await api.client.post("/v1/runs", json={"agent": {**AGENT, "version": 1}, "input": "hello"})
        assert_problem(answer, 422, "unknown_agent", "/agent/version")
        answer = await api.client.post("/v1/runs", json={"agent": {"model": "fake/x", "max_step": 1}, "input": "hi"})
        assert_problem(answer, 422, "validation_error", "/agent/max_step")


async def test_the_same_key_finds_its_run_though_there_is_a_newer_version() -> None:
    async with world() as api:
        await keep(api)
        body, headers = {"agent": "support", "input": "hello"}, {"Idempotency-Key": "k"}
        first = await api.client.post("/v1/runs", json=body, headers=headers)
        await keep(api, agent=OTHER)
        again = await api.client.post("/v1/runs", json=body, headers=headers)
        assert again.headers.get("idempotency-replayed") == "true", again.text
        assert again.json()["id"] == first.json()["id"]


async def test_conversations_forks_and_retries_take_a_name() -> None:
    async with world() as api:
        await keep(api)
        begun = (await api.client.post("/v1/conversations", json={"agent": "support"})).json()
        assert begun["agent"]["version"] == 1
        run = await api.submit(agent=None, conversation_id=begun["id"])
        assert (run["agent"]["name"], run["agent"]["version"]) == ("support", 1)
        await api.fail(run)
        await keep(api, agent=OTHER)
        retried = await api.client.post(f"/v1/runs/{run['id']}/retry", json={"agent": "support"})
        assert retried.json()["agent"]["version"] == 2
        changed = await api.client.patch(f"/v1/conversations/{begun['id']}", json={"agent": "support@1"})
        assert changed.json()["agent"]["version"] == 1
        forked = await api.client.post(f"/v1/conversations/{begun['id']}/fork", json={"agent": "support"})
        assert forked.json()["agent"]["version"] == 2


HELD = Caller(True, "web", agents=frozenset({"support"}))


async def test_a_key_for_some_agents_runs_no_other_one() -> None:
    async with world() as api:
        await keep(api)
        await keep(api, "billing")
        backend = api.app.state.backend
        inline = AgentSpec.model_validate_json('{"model": "fake/tool-20", "name": "support"}')
        free = await api.submit()
        await api.fail(free)
        theirs = await api.submit(agent="billing")
        taken = await operations.submit(backend, Submission(agent="support", input="hello"), HELD)
        assert taken.run.agent.version == 1
        refusals: list[Callable[[], Awaitable[object]]] = [
            lambda: operations.submit(backend, Submission(agent="billing", input="hello"), HELD),
            lambda: operations.submit(backend, Submission(agent=inline, input="hello"), HELD),
            lambda: operations.submit(backend, Submission(conversation_id=theirs["conversation_id"], input="hi"), HELD),
            lambda: operations.submit(
                backend,
                Submission(agent="support", conversation_id=theirs["conversation_id"], input="hi", on_conflict="steer"),
                HELD,
            ),
            lambda: operations.retry(backend, free["id"], Retry(), HELD),
            lambda: operations.append(backend, theirs["conversation_id"], "do this", HELD),
            lambda: operations.act(backend, theirs["id"], [Steering(type="message", content="do this")], HELD),
            lambda: operations.create_conversation(backend, NewConversation(agent=inline), HELD),
            lambda: operations.change_conversation(
                backend, theirs["conversation_id"], ConversationPatch(agent="billing"), HELD
            ),
            lambda: operations.fork(backend, theirs["conversation_id"], Fork(agent=inline), HELD),
            lambda: operations.read_agent(backend, "billing", None, HELD),
            lambda: operations.remove_agent(backend, "billing", HELD),
        ]
        for refusal in refusals:
            with pytest.raises(Refused) as refused:
                await refusal()
            assert refused.value.code == "agent_not_allowed"
            assert "support" in str(refused.value)
        page = await operations.list_agents(backend, HELD, limit=10, cursor=None)
        assert [agent.name for agent in page.agents] == ["support"]


async def test_a_key_for_a_version_runs_that_one_alone() -> None:
    async with world() as api:
        await keep(api)
        await keep(api, agent=OTHER)
        backend, caller = api.app.state.backend, Caller(True, "web", agents=frozenset({"support@1"}))
        taken = await operations.submit(backend, Submission(agent="support@1", input="hello"), caller)
        assert taken.run.agent.version == 1
        assert (await operations.read_agent(backend, "support", 1, caller)).version == 1
        with pytest.raises(Refused):
            await operations.submit(backend, Submission(agent="support", input="hello"), caller)
        for version in (None, 2):
            with pytest.raises(Refused):
                await operations.read_agent(backend, "support", version, caller)


def test_one_is_kept_up_to_so_many_bytes() -> None:
    def faults(instructions: str) -> list[str]:
        agent = AgentSpec(model="fake/tool-20", instructions=instructions)
        return [fault.pointer for fault in kept_faults("support", agent)]

    assert faults("x" * 200_000) == []
    assert faults("\u00e9" * 140_000) == ["/agent"]


async def test_a_key_for_some_agents_asks_beside_their_conversations_alone() -> None:
    async with world() as api:
        await keep(api)
        backend = api.app.state.backend
        taken = await operations.submit(backend, Submission(agent="support", input="hello"), HELD)
        await api.finish({**taken.run.model_dump(), "links": {"self": f"/v1/runs/{taken.run.id}"}})
        other = await api.submit()
        await api.finish(other)
        with pytest.raises(Refused) as refused:
            await operations.ask(backend, other["conversation_id"], "why?", HELD, seconds=1)
        assert refused.value.code == "agent_not_allowed"
        # It is asked: nobody is there to answer.
        with pytest.raises(StateConflict, match="none within"):
            await operations.ask(backend, taken.run.conversation_id, "why?", HELD, seconds=0.1)


async def test_another_tenants_agent_is_none() -> None:
    async with world() as api:
        await keep(api)
        backend, other = api.app.state.backend, Caller(True, "web", tenant="abcdef")
        with pytest.raises(UnknownAgent) as foreign:
            await operations.read_agent(backend, "support", None, other)
        with pytest.raises(UnknownAgent) as unknown:
            await operations.read_agent(backend, "nothing", None, other)
        assert str(foreign.value).replace("support", "nothing") == str(unknown.value)
        with pytest.raises(UnknownAgent):
            await operations.remove_agent(backend, "support", other)
        with pytest.raises(Refused) as refused:
            await operations.submit(backend, Submission(agent="support", input="hello"), other)
        assert refused.value.code == "unknown_agent"
        assert not (await operations.list_agents(backend, other, limit=10, cursor=None)).agents
        body = NewAgent.model_validate_json('{"model": "fake/tool-20"}')
        kept, new = await operations.keep_agent(backend, "support", body, other)
        assert (kept.version, new) == (1, True)
        assert (await api.client.get("/v1/agents/support")).json()["agent"]["tools"] == ["calculator"]
