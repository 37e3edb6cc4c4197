"""Calls that wait below a run, by the routes of that run (ADR 0097)."""

from __future__ import annotations

from typing import Any

import httpx

from palaver.schemas.models import Message, ToolCall
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue, OpenCall, Postpone
from palaver.store.runs.children import child_id
from palaver.vocabulary.lifecycle import WaitReason
from palaver.vocabulary.step_kinds import REMOTE
from tests.unit.api_world import World, assert_problem, call, world
from tests.unit.test_api_subagents import LEAD, keep


async def _family(api: World, *ids: str, **agent: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run whose calls wait, and the runs that they wait for."""
    await keep(api, "researcher", **agent)
    run = await api.submit(agent=LEAD)
    return run, await call_agent(api, run, *ids or ("c1",))


async def call_agent(api: World, run: dict[str, Any], *ids: str) -> list[dict[str, Any]]:
    """Let its model call the agent: the runs of the calls, which wait for them."""
    asked = [ToolCall(id=each, name="agent_researcher", arguments='{"message": "look"}') for each in ids]
    opened = tuple(OpenCall(each, idempotent=True, kind=REMOTE) for each in asked)
    verdict = Continue(Message(role="assistant", tool_calls=tuple(asked)), calls=opened)
    children = []
    for delivery in (await api.store.steps.settle(await api.claim(run), verdict)).deliveries:
        lease = await api.store.steps.claim(
            run["id"], run["conversation_id"], delivery.step, queues=("model",), worker="w-1", nonce="n", known=0
        )
        assert isinstance(lease, Lease), lease
        await api.store.children.begin(lease, lease.agent.subagents["agent_researcher"], "look")
        await api.store.steps.settle(lease, Postpone(3600.0, child_id(lease), WaitReason.AGENT_RUN))
        children.append((await api.client.get(f"/v1/runs/{child_id(lease)}")).json())
    return children


async def _send(api: World, run: dict[str, Any], *items: dict[str, Any], **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.client.post(f"{run['links']['self']}/input", json={"items": items}, headers=sent)


def _approve(action: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "approval", "action_id": action["id"], "decision": "approve", **more}


async def test_they_are_answered_by_the_run_above_once() -> None:
    async with world() as api:
        run, (child,) = await _family(api)
        await api.ask(child, call("c1", "approval"))
        seen = await api.read(run)
        (action,) = seen["pending_below"]
        assert (action["run_id"], action["path"], action["call_id"]) == (child["id"], [child["id"]], "c1")
        answer = await _send(api, run, _approve(action, digest=action["digest"]), Idempotency_Key="k1")
        assert (answer.status_code, answer.json()["id"], answer.json()["pending_below"]) == (202, run["id"], [])
        again = await _send(api, run, _approve(action, digest=action["digest"]), Idempotency_Key="k1")
        assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
        for door in (run, child):
            assert_problem(await _send(api, door, _approve(action)), 409, "action_already_resolved")
        assert (await api.read(child))["pending_actions"] == []


async def test_answered_at_the_child_they_are_over_above() -> None:
    async with world() as api:
        run, (child,) = await _family(api)
        waits = await api.ask(child, call("c1", "approval"))
        assert (await _send(api, child, _approve(waits["pending_actions"][0]))).status_code == 202
        assert (await api.read(run))["pending_below"] == []


async def test_a_clients_output_goes_down_by_the_id_of_its_action_and_of_its_call() -> None:
    async with world() as api:
        run, children = await _family(api, "c1", "c2", client_tools=[{"name": "open_file"}])
        for child, number in zip(children, (7, 8), strict=True):
            await api.ask(child, call(f"o{number}", "client_tool", "open_file"))
        first, second = sorted((await api.read(run))["pending_below"], key=lambda action: action["call_id"])
        for target in (first["id"], second["call_id"]):
            answer = await _send(api, run, {"type": "tool_output", "call_id": target, "output": "seen"})
            assert answer.status_code == 202, answer.text
        assert (await api.read(run))["pending_below"] == []


async def test_edited_arguments_are_checked_by_the_childs_tool() -> None:
    async with world() as api:
        await api.meet_worker()
        run, (child,) = await _family(api)
        await api.ask(child, call("c1", "approval"))
        (action,) = (await api.read(run))["pending_below"]
        edit = {**_approve(action), "decision": "edit", "arguments": {"no": 1}}
        assert_problem(await _send(api, run, edit), 422, "invalid_arguments")
        edit["arguments"] = {"expression": "2 + 2"}
        assert (await _send(api, run, edit)).status_code == 202


async def test_what_is_for_several_runs_is_sent_by_itself() -> None:
    async with world() as api:
        run, children = await _family(api, "c1", "c2")
        for child in children:
            await api.ask(child, call("c1", "approval"))
        first, second = (await api.read(run))["pending_below"]
        answer = await _send(api, run, _approve(first), _approve(second))
        assert_problem(answer, 422, "validation_error", "/items/1")
        answer = await _send(api, run, _approve(first), {"type": "message", "content": "Quickly."})
        assert_problem(answer, 422, "validation_error", "/items/1")
        assert len((await api.read(run))["pending_below"]) == 2


async def test_all_are_those_of_the_run_alone_and_the_others_are_named() -> None:
    async with world() as api:
        run, (child,) = await _family(api)
        await api.ask(child, call("c1", "approval"))
        answer = await _send(api, run, {"type": "approval", "action_id": "all", "decision": "approve"})
        problem = assert_problem(answer, 409, "no_pending_action")
        assert [action["run_id"] for action in problem["pending_actions"]] == [child["id"]]
        nothing = {"type": "approval", "action_id": "act_nothing", "decision": "approve"}
        assert_problem(await _send(api, run, nothing), 409, "unknown_action")


async def test_who_waits_for_the_run_hears_of_them() -> None:
    async with world() as api:
        run, (child,) = await _family(api)
        await api.ask(child, call("c1", "approval"))
        answer = await api.client.get(f"{run['links']['self']}?wait=30&until=action")
        assert len(answer.json()["pending_below"]) == 1
        page = await api.client.get(f"{run['links']['self']}/events", headers={"Accept": "application/json"})
        (event,) = [each for each in page.json()["data"] if each["type"] == "child.action_required"]
        assert (event["run_id"], event["child_run_id"], event["action"]["call_id"]) == (run["id"], child["id"], "c1")


async def test_they_are_listed_by_the_run_above() -> None:
    async with world() as api:
        run, children = await _family(api, "c1", "c2")
        await api.submit()
        listed = (await api.client.get("/v1/runs", params={"parent": run["id"]})).json()
        assert [each["id"] for each in listed["data"]] == [child["id"] for child in reversed(children)]
        answer = await api.client.get("/v1/runs", params={"parent": "run_1"})
        assert_problem(answer, 422, "validation_error", "?parent")
        done = await api.client.post("/v1/runs/actions", json={"action": "cancel", "filter": {"parent": run["id"]}})
        assert done.json()["done"] == 2


async def test_a_call_id_of_several_runs_below_is_that_of_none() -> None:
    """Providers may give the same id in each answer."""
    async with world() as api:
        run, children = await _family(api, "c1", "c2")
        for child in children:
            await api.ask(child, call("call00000", "client_tool"))
        first, second = (await api.read(run))["pending_below"]
        assert first["call_id"] == second["call_id"]
        output = {"type": "tool_output", "call_id": "call00000", "output": "blue"}
        refused = await _send(api, run, output)
        assert_problem(refused, 422, "validation_error")
        assert "name the action" in refused.json()["errors"][0]["message"]
        answer = await _send(api, run, {**output, "call_id": second["id"]})
        assert answer.status_code == 202, answer.text
        assert [each["run_id"] for each in (await api.read(run))["pending_below"]] == [first["run_id"]]
