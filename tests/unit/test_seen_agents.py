"""A conversation gets another agent between the look at it and the run, or the fork, that leans on what was seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.api_world import World, assert_problem, world
from tests.unit.test_api_policy import ANN, BOB, KEYED, by
from tests.unit.test_api_second_person import AGENT, PAY, office

DEAR = {"model": "fake/tool-20", "name": "dear"}
CHEAP = {"model": "fake/tool-20"}
THRIFT: dict[str, Any] = {"r": {"when": {"agents": ["dear"]}, "budget": {"tokens": 10}}}


def once_before(owner: object, name: str, change: Callable[[], Awaitable[object]], patch: pytest.MonkeyPatch) -> None:
    """Let a change come right before the first call of a method, behind all looks that come before."""
    method, changes = getattr(owner, name), [change]

    async def called(*args: Any, **given: Any) -> Any:
        if changes:
            await changes.pop()()
        return await method(*args, **given)

    patch.setattr(owner, name, called)


async def changed(api: World, conversation: str, agent: dict[str, Any]) -> None:
    answer = await api.client.patch(f"/v1/conversations/{conversation}", json={"agent": agent})
    assert answer.status_code == 200, answer.text


async def test_a_run_has_the_budget_of_the_rules_for_the_agent_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(rules=THRIFT) as api:
        made = (await api.client.post("/v1/conversations", json={"agent": CHEAP})).json()["id"]
        once_before(api.store.runs, "submit", lambda: changed(api, made, DEAR), monkeypatch)
        run = (await api.client.post("/v1/runs", json={"conversation_id": made, "input": "hello"})).json()
        assert (run["agent"]["name"], run["budget"]["tokens"]) == ("dear", 10)


async def test_a_conversation_that_changes_before_each_look_ends_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(rules=THRIFT) as api:
        made = (await api.client.post("/v1/conversations", json={"agent": CHEAP})).json()["id"]
        submit, agents = api.store.runs.submit, [{**CHEAP, "instructions": f"{turn}"} for turn in range(9)]

        async def changing(*args: Any, **given: Any) -> Any:
            await changed(api, made, agents.pop())
            return await submit(*args, **given)

        monkeypatch.setattr(api.store.runs, "submit", changing)
        answer = await api.client.post("/v1/runs", json={"conversation_id": made, "input": "hello"})
        assert_problem(answer, 409, "conversation_changed")
        assert len(agents) == 4
        assert not (await api.client.get("/v1/runs")).json()["data"]


async def test_a_condensing_run_is_judged_by_the_agent_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(rules=THRIFT) as api:
        made = (await api.client.post("/v1/conversations", json={"agent": CHEAP})).json()["id"]
        words = [{"role": "user", "content": str(turn)} for turn in range(3)]
        await api.client.post(f"/v1/conversations/{made}/messages", json={"input": words})
        once_before(api.store.runs, "submit", lambda: changed(api, made, DEAR), monkeypatch)
        run = (await api.client.post(f"/v1/conversations/{made}/condense")).json()
        assert (run["agent"]["name"], run["budget"]["tokens"]) == ("dear", 10)


async def test_a_key_for_one_agent_runs_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(KEYED) as api:
        await api.client.put("/v1/agents/teller", json=CHEAP, headers=by(ANN))
        body = {"name": "kiosk", "scopes": ["runs:submit"], "agents": ["teller"]}
        kiosk = (await api.client.post("/v1/keys", json=body, headers=by(ANN))).json()["key"]
        run = (await api.client.post("/v1/runs", json={"agent": "teller", "input": "hello"}, headers=by(ANN))).json()
        more = {"conversation_id": run["conversation_id"], "input": "go on", "on_conflict": "enqueue"}

        async def other() -> None:
            sent = await api.client.post("/v1/runs", json={**more, "agent": DEAR}, headers=by(BOB))
            assert sent.status_code == 202, sent.text

        once_before(api.store.runs, "submit", other, monkeypatch)
        assert_problem(await api.client.post("/v1/runs", json=more, headers=by(kiosk)), 403, "agent_not_allowed")
        assert len((await api.client.get("/v1/runs", headers=by(ANN))).json()["data"]) == 2


async def test_who_wrote_the_agent_of_a_fork_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with office() as desk:
        made = await desk.have("ann", "POST", "/v1/conversations", {"agent": {**AGENT, "instructions": PAY}})

        async def other() -> None:
            await desk.submit("bob", conversation_id=made["id"], agent={**AGENT, "instructions": "hello"})

        once_before(desk.api.store.runs, "copy", other, monkeypatch)
        fork = await desk.have("dan", "POST", f"/v1/conversations/{made['id']}/fork", {})
        standing = await desk.api.store.runs.agent_of(fork["id"])
        assert standing.spec is not None
        assert standing.spec.instructions == "hello"
        assert standing.by == {"bob"}
