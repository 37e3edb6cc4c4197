"""The operator's rules: what a request would loosen is refused with a sentence, what it leaves out gets the floor."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.steps.retry import RetryPolicy
from palaver.tools import tool
from tests.unit.api_world import SETTINGS, World, assert_problem, in_one_world, world

ANN, BOB = "ann-0123456789abcdef", "bob-0123456789abcdef"
KEYED = SETTINGS.model_copy(update={"api_keys": Settings(api_keys=f"ann={ANN},bob={BOB}").api_keys})
NEVER = {"require": "never"}


@tool
def refund(amount: int) -> str:
    """Pay money back."""
    return f"paid {amount}"


@tool(risky=True)
def wipe() -> str:
    """Forget everything."""
    return "gone"


@tool(inline=True)
def look_up(order: str) -> str:
    """Find an order."""
    return order


TOOLS = (refund, wipe, look_up)
ALL = {"model": "fake/tool-20", "tools": ["refund", "wipe", "look_up"]}
REFUND: dict[str, Any] = {"approvals": {"require": ["refund"]}}


def by(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def begin(api: World, agent: dict[str, Any] | None = None, **body: Any) -> dict[str, Any]:
    run = await api.submit(agent={**ALL, **(agent or {})}, **body)
    return dict(run["agent"])


async def refuse(api: World, agent: Any, *pointers: str, rule: str = "r", **body: Any) -> None:
    answer = await api.client.post("/v1/runs", json={"agent": agent, "input": "hello", **body})
    problem = assert_problem(answer, 403, "policy_violation", *pointers)
    assert all(f"the rule {rule} " in fault["message"] for fault in problem["errors"]), problem
    assert not (await api.client.get("/v1/runs")).json()["data"]


async def test_an_approval_that_a_rule_demands_is_not_waived() -> None:
    async with world(rules={"r": REFUND}, tools=TOOLS) as api:
        for waiver, pointer in (
            (NEVER, "require"),
            ({"exempt": ["look_up", "ref*"]}, "exempt/1"),
            ({"require": "always", "exempt_alone": ["refund"]}, "exempt_alone/0"),
        ):
            await refuse(api, {**ALL, "approvals": waiver}, f"/agent/approvals/{pointer}")


@pytest.mark.parametrize(
    ("required", "approvals", "require"),
    [
        (["refund"], None, ["refund"]),
        (["ref*", "nothing"], None, ["refund"]),
        (["refund"], {"require": "risky", "timeout": 9}, ["refund"]),
        (["refund"], {"require": ["look_*"]}, ["look_*", "refund"]),
        (["refund"], {"require": "always"}, "always"),
        (["refund"], {"exempt": ["look_up"]}, ["refund"]),
        ("always", None, "always"),
        ("always", {"require": ["look_up"]}, "always"),
        ("risky", None, "risky"),
        ("risky", {"require": ["look_up"], "exempt": ["look_up"]}, ["look_up"]),
    ],
)
async def test_what_is_left_out_gets_the_floor(required: Any, approvals: Any, require: Any) -> None:
    rules = {"r": {"approvals": {"require": required}}}
    async with world(rules=rules, tools=TOOLS) as api:
        agent = await begin(api, {} if approvals is None else {"approvals": approvals})
        assert agent["approvals"]["require"] == require
        assert agent["approvals"]["timeout"] == (approvals or {}).get("timeout", 86_400)


async def test_a_rule_about_risky_tools_looks_at_how_they_are_declared() -> None:
    async with world(rules={"r": {"approvals": {"require": "risky"}}}, tools=TOOLS) as api:
        await refuse(api, {**ALL, "approvals": NEVER}, "/agent/approvals/require")
        await refuse(api, {**ALL, "approvals": {"exempt": ["wi*"]}}, "/agent/approvals/exempt/0")
        safe = await begin(api, {"tools": ["refund"], "approvals": NEVER})
        # Nothing is waived today; and nothing will be, if the tool is declared otherwise tomorrow.
        assert safe["approvals"]["require"] == "risky"


async def test_a_tool_that_nobody_has_declared_may_be_risky() -> None:
    async with world(rules={"r": {"approvals": {"require": "risky"}}}, tools=()) as api:
        await refuse(api, {**ALL, "approvals": NEVER}, "/agent/approvals/require")


async def test_an_agent_without_the_tool_is_left_as_it_is() -> None:
    async with world(rules={"r": REFUND}, tools=TOOLS) as api:
        agent = await begin(api, {"tools": ["look_up"], "approvals": NEVER})
        assert agent["approvals"]["require"] == "never"


CEILINGS: dict[str, Any] = {
    "tools": ["refund", "look_*"],
    "models": ["fake/tool-*"],
    "max_steps": 50,
    "budget": {"tokens": 1000, "seconds": 60},
    "retry": {"attempts": 3, "patience": 30},
}


@in_one_world([
        ({}, {}, "/agent/tools/1"),
        ({"tools": [], "model": "fake/other"}, {}, "/agent/model"),
        ({"tools": [], "fallbacks": ["fake/tool-1", "fake/other"]}, {}, "/agent/fallbacks/1"),
        ({"tools": [], "max_steps": 51}, {}, "/agent/max_steps"),
        ({"tools": []}, {"budget": {"tokens": 1001, "seconds": 60}}, "/budget/tokens"),
        ({"tools": [], "retry": {"rules": {"timeout": {"attempts": 4}, "connection": {"attempts": 3}}}}, {},
         "/agent/retry/rules/timeout/attempts"),
        ({"tools": [], "retry": {"patience": 31}}, {}, "/agent/retry/patience"),
        ({"tools": [], "retry": "patient"}, {}, "/agent/retry/rules/rate_limited/attempts"),
    ], rules={'r': CEILINGS}, tools=TOOLS)  # fmt: skip
async def test_more_than_a_rule_allows_is_refused(
    api: World, agent: dict[str, Any], body: dict[str, Any], pointer: str
) -> None:
    await refuse(api, {**ALL, **agent}, pointer, **body)


async def test_limits_that_are_left_out_are_those_of_the_rules_and_the_strictest_counts() -> None:
    rules = {"r": CEILINGS, "s": {"max_steps": 40, "budget": {"tool_calls": 5, "tokens": 2000}}}
    async with world(rules=rules, tools=TOOLS) as api:
        run = await api.submit(agent={**ALL, "tools": ["refund"]}, budget={"tokens": 10})
        assert run["agent"]["max_steps"] == 40
        assert run["budget"] == {"tokens": 10, "cost_usd": None, "tool_calls": 5, "seconds": 60}
        policy = RetryPolicy.parse(run["agent"]["retry"])
        assert "tools" not in run["agent"]["retry"]
        assert {name.value: rule.attempts for name, rule in policy.rules.items()} == {
            "rate_limited": 3, "provider_error": 3, "connection": 3, "timeout": 3, "storage": 10,
        }  # fmt: skip
        assert policy.patience.total_seconds() == 30


async def test_a_ceiling_in_dollars_needs_prices() -> None:
    async with world(rules={"r": {"budget": {"cost_usd": 1.0}}}, tools=TOOLS) as api:
        answer = await api.client.post("/v1/runs", json={"agent": ALL, "input": "hello"})
        assert_problem(answer, 422, "unknown_price", "/agent/model")


async def test_only_agents_on_the_server() -> None:
    async with world(rules={"r": {"inline_agents": False}}, tools=TOOLS) as api:
        await refuse(api, ALL, "/agent")
        await refuse(api, {**ALL, "name": "support"}, "/agent")
        await api.client.put("/v1/agents/support", json=ALL)
        assert (await api.submit(agent="support"))["agent"]["version"] == 1


async def test_rules_for_some_runs_alone() -> None:
    rules = {
        "r": {"when": {"agents": ["support"], "tenants": ["default"]}, "max_steps": 5},
        "s": {"when": {"models": ["fake/big*"]}, "max_steps": 7},
        "t": {"when": {"tenants": ["acme"]}, "max_steps": 1},
    }
    async with world(rules=rules, tools=TOOLS) as api:
        assert (await begin(api))["max_steps"] == 100
        assert (await begin(api, {"name": "support"}))["max_steps"] == 5
        assert (await begin(api, {"fallbacks": ["fake/big-1"]}))["max_steps"] == 7


async def test_an_agent_on_the_server_keeps_the_rules_when_it_is_put_and_when_it_runs() -> None:
    async with world(rules={"r": {**REFUND, "max_steps": 50}}, tools=TOOLS) as api:
        answer = await api.client.put("/v1/agents/support", json={**ALL, "approvals": NEVER, "max_steps": 51})
        assert_problem(answer, 403, "policy_violation", "/approvals/require", "/max_steps")
        kept = await api.client.put("/v1/agents/support", json=ALL)
        assert kept.json()["agent"]["approvals"]["require"] == "risky"
        run = await api.submit(agent="support")
        assert (run["agent"]["approvals"]["require"], run["agent"]["max_steps"]) == (["refund"], 50)
        assert run["agent"]["version"] == 1


async def test_one_from_before_the_rule_is_tightened() -> None:
    async with world(tools=TOOLS) as before:
        await before.client.put("/v1/agents/support", json={**ALL, "approvals": NEVER, "retry": "patient"})
        rules = {"r": {**REFUND, "retry": {"attempts": 2}}}
        async with _with_rules(before, rules) as api:
            agent = (await api.submit(agent="support"))["agent"]
            assert agent["approvals"]["require"] == ["refund"]
            assert agent["retry"]["rules"]["rate_limited"]["attempts"] == 2


async def test_conversations_retries_and_forks_from_before_the_rule_get_its_floor() -> None:
    async with world(tools=TOOLS) as before:
        waives = {**ALL, "approvals": {"require": "never", "exempt": ["refund", "look_up"]}}
        failed = await before.submit(agent=waives, budget={"tokens": 5000})
        await before.fail(failed)
        bulk = await before.submit(agent=waives)
        await before.fail(bulk)
        talk = await before.submit(agent=waives)
        await before.finish(talk)
        rules = {"r": {**REFUND, "budget": {"tokens": 1000}}}
        async with _with_rules(before, rules) as api:
            again = (await api.client.post(f"/v1/runs/{failed['id']}/retry", json={})).json()
            _check_floor(again)
            waived = await api.client.post(f"/v1/runs/{failed['id']}/retry", json={"agent": waives})
            assert_problem(waived, 403, "policy_violation", "/agent/approvals/require", "/agent/approvals/exempt/0")
            over = await api.client.post(f"/v1/runs/{failed['id']}/retry", json={"budget": {"tokens": 1001}})
            assert_problem(over, 403, "policy_violation", "/budget/tokens")
            forked = await api.client.post(f"/v1/runs/{talk['id']}/retry", json={"from_step": 1, "input": "again"})
            _check_floor(forked.json())
            _check_floor(await api.submit(agent=None, conversation_id=talk["conversation_id"]))
            many = {"action": "retry", "filter": {"status": ["failed"], "retried": False}}
            acted = (await api.client.post("/v1/runs/actions", json=many)).json()
            new = await api.client.get(f"/v1/runs/{acted['retried_as'][bulk['id']]}")
            _check_floor(new.json())


def _check_floor(run: dict[str, Any]) -> None:
    assert run["agent"]["approvals"]["require"] == ["refund"], run
    assert run["agent"]["approvals"]["exempt"] == ["look_up"]
    assert run["budget"]["tokens"] == 1000


async def test_what_no_floor_can_mend_is_refused_and_says_whose_it_is() -> None:
    async with world(tools=TOOLS) as before:
        failed = await before.submit(agent=ALL)
        await before.fail(failed)
        talk = await before.submit(agent=ALL)
        await before.finish(talk)
        async with _with_rules(before, {"r": {"tools": ["look_up"]}}) as api:
            answer = await api.client.post(f"/v1/runs/{failed['id']}/retry", json={})
            problem = assert_problem(answer, 403, "policy_violation")
            assert "the run's /tools/0 is a tool that the rule r does not allow" in problem["detail"]
            again = {"conversation_id": talk["conversation_id"], "input": "more"}
            problem = assert_problem(await api.client.post("/v1/runs", json=again), 403, "policy_violation")
            assert "the conversation's /tools/0" in problem["detail"]
            many = {"action": "retry", "filter": {"status": ["failed"]}}
            acted = (await api.client.post("/v1/runs/actions", json=many)).json()
            assert (acted["done"], acted["skipped"]) == (0, {"policy_violation": 1})


async def test_conversations_are_begun_and_changed_by_the_rules() -> None:
    async with world(rules={"r": REFUND}, tools=TOOLS) as api:
        waives = {"agent": {**ALL, "approvals": NEVER}}
        answer = await api.client.post("/v1/conversations", json=waives)
        assert_problem(answer, 403, "policy_violation", "/agent/approvals/require")
        begun = (await api.client.post("/v1/conversations", json={"agent": ALL})).json()
        assert begun["agent"]["approvals"]["require"] == ["refund"]
        for method, path in (("PATCH", ""), ("POST", "/fork")):
            answer = await api.client.request(method, f"/v1/conversations/{begun['id']}{path}", json=waives)
            assert_problem(answer, 403, "policy_violation", "/agent/approvals/require")


async def test_a_scheduled_run_and_one_that_cuts_in_keep_the_rules() -> None:
    async with world(rules={"r": REFUND}, tools=TOOLS) as api:
        waives, later = {**ALL, "approvals": NEVER}, (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        await refuse(api, waives, "/agent/approvals/require", start_after=later)
        first = await api.submit(agent=ALL)
        for conflict in ("steer", "interrupt", "rollback", "enqueue"):
            body = {"agent": waives, "input": "x", "conversation_id": first["conversation_id"], "on_conflict": conflict}
            assert_problem(await api.client.post("/v1/runs", json=body), 403, "policy_violation")


async def test_condensing_and_a_question_beside_keep_the_rules() -> None:
    async with world(tools=TOOLS) as before:
        talk = await before.submit(agent={**ALL, "approvals": NEVER})
        await before.finish(talk)
        for _ in range(2):
            more = await before.submit(agent=None, conversation_id=talk["conversation_id"])
            await before.finish(more)
        path = f"/v1/conversations/{talk['conversation_id']}"
        async with _with_rules(before, {"r": {"models": ["fake/small"]}}) as api:
            assert_problem(await api.client.post(f"{path}/condense"), 403, "policy_violation")
            assert_problem(await api.client.post(f"{path}/ask", json={"question": "why?"}), 403, "policy_violation")
        async with _with_rules(before, {"r": {**REFUND, "budget": {"tokens": 1000}}}) as api:
            condensing = (await api.client.post(f"{path}/condense")).json()
            assert condensing["budget"]["tokens"] == 1000


OTHER: dict[str, Any] = {"approvals": {"require": ["refund"], "approver": "other"}}


async def test_a_rule_may_demand_a_second_person_and_says_so_on_the_run() -> None:
    async with world(KEYED, rules={"r": OTHER}, tools=TOOLS) as api:
        api.client.headers.update(by(ANN))
        run = await api.submit(agent=ALL)
        assert run["submitted_by"] == "ann"
        assert run["agent"]["approvals"]["second_person"] == ["refund"]
        kept = await begin(api, {"approvals": {"require": ["look_up"], "second_person": ["look_up"]}})
        assert kept["approvals"]["second_person"] == ["look_up", "refund"]


async def test_without_names_nobody_is_somebody_else() -> None:
    async with world(rules={"r": OTHER}, tools=TOOLS) as api:
        answer = await api.client.post("/v1/runs", json={"agent": ALL, "input": "hello"})
        problem = assert_problem(answer, 403, "second_person_required", "/agent/approvals/second_person")
        assert "no key with a name" in problem["detail"]
        asked = {**ALL, "approvals": {"second_person": ["wipe"]}}
        async with world(tools=TOOLS) as free:
            answer = await free.client.post("/v1/runs", json={"agent": asked, "input": "hello"})
            assert_problem(answer, 403, "second_person_required", "/agent/approvals/second_person")


async def test_a_retry_that_brings_an_agent_is_held_to_it_as_a_submit_is() -> None:
    asked = {**ALL, "approvals": {"second_person": ["wipe"]}}
    async with world(tools=TOOLS) as api:
        run = await api.submit(agent=ALL)
        await api.fail(run)
        answer = await api.client.post(f"{run['links']['self']}/retry", json={"agent": asked})
        assert_problem(answer, 403, "second_person_required", "/agent/approvals/second_person")


async def test_a_retry_policy_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, parsed = RetryPolicy.parse, []

    def counted(value: object, **options: bool) -> RetryPolicy:
        parsed.append(value)
        return parse(value, **options)

    given = {"rules": {"timeout": {"attempts": 3}}}
    async with world(rules={"r": {"retry": {"attempts": 5}}}, tools=TOOLS) as api:
        monkeypatch.setattr(RetryPolicy, "parse", counted)
        await api.submit(agent={**ALL, "retry": given})
    assert parsed == [given]


async def test_what_is_wrong_below_is_said_with_what_is_wrong_above() -> None:
    rules: dict[str, Any] = {"r": {"models": ["fake/tool-*"]}}
    below = {"agent_x": {"agent": {"model": "fake/echo"}}}
    async with world(rules=rules) as api:
        agent = {"model": "fake/echo", "tools": ["agent_x"], "subagents": below}
        answer = await api.client.post("/v1/runs", json={"agent": agent, "input": "hello"})
        problem = assert_problem(answer, 403, "policy_violation", "/agent/model", "/agent")
        assert problem["errors"][1]["message"].startswith("the agent x's /model ")


async def test_without_rules_and_with_a_free_key_nothing_more_is_read() -> None:
    async with world(tools=TOOLS) as api:
        await api.meet_worker()
        talk = await api.submit(agent=ALL)
        await api.finish(talk)
        reads: list[str] = []
        conversation = api.store.runs.conversation

        async def counted(conversation_id: str) -> Any:
            reads.append(conversation_id)
            return await conversation(conversation_id)

        api.store.runs.conversation = counted  # type: ignore[method-assign]
        await api.submit(agent=None, conversation_id=talk["conversation_id"])
        assert not reads


def _with_rules(api: World, rules: dict[str, Any]) -> Any:
    """An API with rules, on the store of another one."""
    return world(server=api.server, rules=rules, tools=TOOLS)
