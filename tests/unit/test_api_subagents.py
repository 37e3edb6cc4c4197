"""Agents as tools of other agents, at admission: looked up, fixed, bounded, governed (ADR 0097)."""

from __future__ import annotations

from typing import Any

import pytest

from palaver import operations
from palaver.errors import Refused
from palaver.operations import Caller
from palaver.schemas.models import Submission
from palaver.vocabulary.limits import limit_of
from tests.unit.api_world import AGENT, SETTINGS, World, assert_problem, world
from tests.unit.two_tenants import tenants

LEAD: dict[str, Any] = {"model": "fake/tool-1", "tools": ["calculator", "agent:researcher"]}


async def keep(api: World, name: str, **agent: Any) -> None:
    answer = await api.client.put(f"/v1/agents/{name}", json={**AGENT, **agent})
    assert answer.status_code in (200, 201), answer.text


async def refused(api: World, code: str, pointer: str, says: str, status: int = 422, **agent: Any) -> None:
    answer = await api.client.post("/v1/runs", json={"agent": {**LEAD, **agent}, "input": "hi"})
    problem = assert_problem(answer, status, code, pointer)
    assert says in problem["errors"][0]["message"], problem


async def test_an_agent_among_the_tools_is_fixed_in_its_version_of_now() -> None:
    async with world() as api:
        await keep(api, "researcher", instructions="Find it.")
        run = await api.submit(agent=LEAD)
        await keep(api, "researcher", instructions="Find it quickly.")
        again = await api.submit(agent={**LEAD, "tools": ["agent:researcher@1"]})
        newest = await api.submit(agent=LEAD)
        assert run["agent"]["tools"] == ["calculator", "agent_researcher"]
        for each, version in ((run, 1), (again, 1), (newest, 2)):
            below = each["agent"]["subagents"]["agent_researcher"]["agent"]
            assert (below["name"], below["version"]) == ("researcher", version)
        assert (await api.read(run))["agent"] == run["agent"]


async def test_an_agent_on_the_server_has_names_and_its_runs_have_versions() -> None:
    async with world() as api:
        await keep(api, "researcher")
        await keep(api, "lead", tools=["agent:researcher"])
        kept = (await api.client.get("/v1/agents/lead")).json()["agent"]
        assert (kept["tools"], kept["subagents"]) == (["agent:researcher"], {})
        await keep(api, "researcher", instructions="Another one.")
        run = await api.submit(agent="lead")
        assert run["agent"]["subagents"]["agent_researcher"]["agent"]["version"] == 2


async def test_a_conversation_has_them_fixed() -> None:
    async with world() as api:
        await keep(api, "researcher")
        made = (await api.client.post("/v1/conversations", json={"agent": LEAD})).json()
        await keep(api, "researcher", instructions="Another one.")
        run = (await api.client.post("/v1/runs", json={"conversation_id": made["id"], "input": "hi"})).json()
        assert run["agent"]["subagents"]["agent_researcher"]["agent"]["version"] == 1
        await api.client.post(f"/v1/runs/{run['id']}/cancel")


async def test_what_is_wrong_is_refused_at_its_place() -> None:
    async with world() as api:
        where = "/agent/tools/1"
        await refused(api, "unknown_agent", where, "is not on the server")
        await keep(api, "researcher")
        await refused(api, "unknown_agent", where, "in that version", tools=["calculator", "agent:researcher@9"])
        await refused(
            api, "duplicate_tool", where, "is another agent", tools=["agent:researcher", "agent:researcher@1"]
        )
        for name in ("agent:", "agent:a b", "tool:x", "agent:x@0"):
            answer = await api.client.post("/v1/runs", json={"agent": {**LEAD, "tools": [name]}, "input": "hi"})
            assert answer.status_code == 422, name
        client_tool = {"name": "agent_researcher"}
        await refused(
            api, "duplicate_tool", "/agent/client_tools/0/name", "one of the agent's tools", client_tools=[client_tool]
        )


async def test_the_model_has_one_name_for_it_that_patterns_fit() -> None:
    async with world() as api:
        await keep(api, "re.searcher")
        agent = {**LEAD, "tools": ["agent:re.searcher"], "approvals": {"require": ["agent_*"]}}
        run = await api.submit(agent={**agent, "tool_choice": {"name": "agent_re_searcher"}})
        assert run["agent"]["tools"] == ["agent_re_searcher"]


async def test_an_agent_is_not_below_itself() -> None:
    async with world() as api:
        await keep(api, "researcher")
        await keep(api, "lead", tools=["agent:researcher"])
        answer = await api.client.put("/v1/agents/researcher", json={**AGENT, "tools": ["agent:lead"]})
        problem = assert_problem(answer, 422, "validation_error", "/tools/0")
        assert "leads to itself: researcher > lead > researcher" in problem["errors"][0]["message"]
        answer = await api.client.put("/v1/agents/lead", json={**AGENT, "tools": ["agent:lead"]})
        assert_problem(answer, 422, "validation_error", "/tools/0")


@pytest.mark.slow
async def test_levels_and_agents_are_bounded() -> None:
    most = limit_of("subagent_depth")
    async with world() as api:
        await keep(api, "level-0")
        for level in range(1, most + 1):
            await keep(api, f"level-{level}", tools=[f"agent:level-{level - 1}"])
        await api.submit(agent=f"level-{most}")
        answer = await api.client.put("/v1/agents/top", json={**AGENT, "tools": [f"agent:level-{most}"]})
        problem = assert_problem(answer, 422, "validation_error", "/tools/0")
        assert f"more than {most} levels" in problem["errors"][0]["message"]
        for number in range(limit_of("subagents") + 1):
            await keep(api, f"n{number}")
        tools = [f"agent:n{number}" for number in range(limit_of("subagents") + 1)]
        await refused(api, "validation_error", "/agent/tools/32", "more than 32 agents", tools=tools)
        await api.submit(agent={**LEAD, "tools": tools[:-1]})


async def test_they_are_bounded_in_bytes() -> None:
    async with world(SETTINGS.model_copy(update={"max_body": 1024 * 1024})) as api:
        for number in range(4):
            await keep(api, f"n{number}", instructions="x" * 180_000)
        tools = [f"agent:n{number}" for number in range(4)]
        await refused(api, "validation_error", "/agent/tools", "bytes together", tools=tools)
        await api.submit(agent={**LEAD, "tools": tools[:2]})


async def test_rules_for_the_agent_below_hold_for_its_runs() -> None:
    rules: dict[str, Any] = {
        "r": {
            "when": {"agents": ["researcher"]},
            "approvals": {"require": "always"},
            "max_steps": 7,
            "budget": {"tokens": 500},
        }
    }
    async with world(rules=rules) as api:
        await keep(api, "researcher", approvals={"require": "risky"}, max_steps=7)
        agent = (await api.submit(agent=LEAD))["agent"]
        below = agent["subagents"]["agent_researcher"]
        assert below["agent"]["approvals"]["require"] == "always"
        assert below["agent"]["max_steps"] == 7
        assert below["budget"]["tokens"] == 500
        assert (agent["approvals"]["require"], agent["max_steps"]) == ("risky", 100)


async def test_a_tool_that_a_rule_does_not_allow_is_not_to_be_had_below() -> None:
    rules: dict[str, Any] = {"r": {"tools": ["agent_*"]}}
    async with world() as api:
        await keep(api, "researcher")
        async with world(rules=rules, server=api.server) as ruled:
            answer = await ruled.client.put("/v1/agents/another", json=AGENT)
            assert_problem(answer, 403, "policy_violation", "/tools/0")
            answer = await ruled.client.put("/v1/agents/lead", json={**AGENT, "tools": ["agent:researcher"]})
            assert_problem(answer, 403, "policy_violation", "")
            own = {"tools": ["agent:researcher"]}
            await refused(ruled, "policy_violation", "/agent", "the agent researcher's /tools/0", 403, **own)


async def test_a_budget_in_dollars_needs_prices_below() -> None:
    async with world() as api:
        await keep(api, "researcher")
        answer = await api.client.post("/v1/runs", json={"agent": LEAD, "input": "hi", "budget": {"cost_usd": 1}})
        problem = assert_problem(answer, 422, "unknown_price", "/agent/model", "/agent/tools/1")
        assert "the agent researcher: /agent/model has no price" in problem["errors"][1]["message"]


async def test_a_key_for_some_agents_needs_all_of_them() -> None:
    async with world() as api:
        await keep(api, "researcher")
        await keep(api, "lead", tools=["agent:researcher"])
        backend, submission = api.app.state.backend, Submission(agent="lead", input="hello")
        with pytest.raises(Refused) as refusal:
            await operations.submit(backend, submission, Caller(True, "web", agents=frozenset({"lead"})))
        assert refusal.value.code == "agent_not_allowed"
        taken = await operations.submit(
            backend, submission, Caller(True, "web", agents=frozenset({"lead", "researcher@1"}))
        )
        assert "agent_researcher" in taken.run.agent.subagents


async def test_a_second_person_below_needs_a_key_with_a_name() -> None:
    async with world() as api:
        await keep(api, "researcher", approvals={"require": "always", "second_person": ["*"]})
        answer = await api.client.post("/v1/runs", json={"agent": LEAD, "input": "hi"})
        assert_problem(answer, 403, "second_person_required", "/agent/approvals/second_person")


async def test_each_tenant_has_agents_of_its_own() -> None:
    async with tenants() as api:
        acme, globex = ({"Authorization": f"Bearer {name}"} for name in ("acme", "globex"))
        answer = await api.client.put("/v1/agents/researcher", json=AGENT, headers=acme)
        assert answer.status_code == 201, answer.text
        body = {"agent": LEAD, "input": "hi"}
        assert (await api.client.post("/v1/runs", json=body, headers=acme)).status_code == 202
        other = await api.client.post("/v1/runs", json=body, headers=globex)
        assert_problem(other, 422, "unknown_agent", "/agent/tools/1")


HELPER: dict[str, Any] = {"model": "fake/echo", "tools": ["calculator"]}
INLINE: dict[str, Any] = {"tools": ["agent_helper"], "subagents": {"agent_helper": {"agent": HELPER}}}


async def test_an_agent_may_stand_in_the_request() -> None:
    async with world() as api:
        await keep(api, "researcher")
        inner = {"agent": {**HELPER, "tools": ["agent:researcher", "agent_leaf"], "subagents": {
            "agent_leaf": {"agent": {**HELPER, "name": "leaf"}}}}, "budget": {"tokens": 500}}  # fmt: skip
        both = ["agent:researcher", "agent_helper"]
        agent = (await api.submit(agent={**LEAD, "tools": both, "subagents": {"agent_helper": inner}}))["agent"]
        assert agent["tools"] == ["agent_researcher", "agent_helper"]
        helper = agent["subagents"]["agent_helper"]
        assert (helper["agent"]["name"], helper["agent"]["version"], helper["budget"]["tokens"]) == (
            "helper",
            None,
            500,
        )
        below = helper["agent"]["subagents"]
        assert [below[name]["agent"]["name"] for name in ("agent_researcher", "agent_leaf")] == ["researcher", "leaf"]
        assert agent["subagents"]["agent_researcher"]["agent"]["version"] == 1
        await keep(api, "lead", **INLINE)
        kept = (await api.submit(agent="lead"))["agent"]["subagents"]["agent_helper"]["agent"]
        assert (kept["name"], kept["tools"]) == ("helper", ["calculator"])


async def test_what_is_wrong_with_it_is_said_at_the_tool() -> None:
    async with world() as api:
        await keep(api, "helper")
        where = "/agent/tools/0"

        async def wrong(code: str, pointer: str, says: str, **fields: Any) -> None:
            below = {"agent_helper": {"agent": {**HELPER, **fields}}}
            await refused(api, code, pointer, says, **{**INLINE, "subagents": below})

        await wrong("unknown_agent", where, "/agent/version is given by the server", version=1, name="helper")
        await wrong("unknown_provider", where, "the agent helper: /agent/model", model="nobody/x")
        await wrong("unknown_agent", where, "is not on the server", tools=["agent:nobody"])
        keyed = {"base_url": "https://models.example/v1", "api_key": "k"}
        await wrong("endpoint_not_allowed", where, "api_key is for the conversation", model="inline/x", endpoint=keyed)
        unpriced = {"agent_helper": {"agent": HELPER, "budget": {"cost_usd": 1}}}
        await refused(api, "unknown_price", where, "has no price", **{**INLINE, "subagents": unpriced})
        for name in ("helper", "agent_", "agent_a b", "agent_" + "x" * 59):
            given = {name: {"agent": HELPER}}
            await refused(api, "validation_error", f"/agent/subagents/{name[:64]}", "is not agent_", subagents=given)
        unused = {"agent_other": {"agent": HELPER}}
        await refused(api, "validation_error", "/agent/subagents/agent_other", "not among the tools", subagents=unused)
        for tools in (["agent_helper"] * 2, ["agent:helper", "agent_helper"], ["agent_helper", "agent:helper"]):
            await refused(api, "duplicate_tool", "/agent/tools/1", "", **{**INLINE, "tools": tools})


async def test_inline_ones_are_bounded_with_the_others() -> None:
    async with world() as api:
        agent = HELPER
        for _ in range(limit_of("subagent_depth")):
            agent = {**HELPER, "tools": ["agent_x"], "subagents": {"agent_x": {"agent": agent}}}
        await api.submit(agent=agent)
        deeper: dict[str, Any] = {"tools": ["agent_x"], "subagents": {"agent_x": {"agent": agent}}}
        await refused(api, "validation_error", "/agent/tools/0", "levels", **deeper)
        names = [f"agent_n{number}" for number in range(limit_of("subagents") + 1)]
        many: dict[str, Any] = {"tools": names, "subagents": {name: {"agent": HELPER} for name in names}}
        await refused(api, "validation_error", "/agent/tools/32", "more than 32 agents", **many)


async def test_rules_hold_for_inline_ones() -> None:
    rules: dict[str, Any] = {
        "r": {
            "when": {"models": ["fake/echo"]},
            "approvals": {"require": "always"},
            "max_steps": 7,
            "budget": {"tokens": 500},
        }
    }
    loose = {"agent": {**HELPER, "approvals": {"require": "never"}, "max_steps": 50}, "budget": {"tokens": 9000}}
    async with world(rules=rules) as api:
        agent = (await api.submit(agent={**LEAD, **INLINE, "subagents": {"agent_helper": loose}}))["agent"]
        below = agent["subagents"]["agent_helper"]
        assert (below["agent"]["approvals"]["require"], below["agent"]["max_steps"]) == ("always", 7)
        assert below["budget"]["tokens"] == 500
        tight = {"agent": HELPER, "budget": {"tokens": 3}}
        agent = (await api.submit(agent={**LEAD, **INLINE, "subagents": {"agent_helper": tight}}))["agent"]
        assert agent["subagents"]["agent_helper"]["budget"]["tokens"] == 3


async def test_a_rule_or_a_key_may_refuse_them() -> None:
    async with world() as api:
        await keep(api, "lead", **INLINE)
        async with world(rules={"r": {"inline_agents": False}}, server=api.server) as ruled:
            answer = await ruled.client.post("/v1/runs", json={"agent": "lead", "input": "hi"})
            problem = assert_problem(answer, 403, "policy_violation", "/agent")
            assert "the agent helper" in problem["errors"][0]["message"]
        caller = Caller(True, "web", agents=frozenset({"lead"}))
        with pytest.raises(Refused) as refusal:
            await operations.submit(api.app.state.backend, Submission(agent="lead", input="hello"), caller)
        assert refusal.value.code == "agent_not_allowed"
