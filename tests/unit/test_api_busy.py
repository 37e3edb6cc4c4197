"""A conversation that is busy: queue, be refused, take the place of what is there, or steer it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.api_world import BODY, World, assert_problem, call, world
from tests.waiting import aeventually


async def test_a_busy_conversation_queues_or_refuses() -> None:
    async with world() as api:
        first = await api.submit()
        follow = {"agent": None, "conversation_id": first["conversation_id"]}
        second = await api.submit(**follow)
        assert second["waiting"] == {
            "reason": "conversation_busy",
            "until": None,
            "run_id": first["id"],
            "attempt": None,
            "error_class": None,
            "code": None,
            "position": None,
        }
        refused = await api.client.post("/v1/runs", json={**BODY, **follow, "on_conflict": "reject"})
        assert assert_problem(refused, 409, "conversation_busy")["run_id"] == first["id"]


async def _waiting_for_approval(api: World) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run that waits for somebody, and what goes on with its conversation."""
    run = await api.ask(await api.submit(), call("c1", "approval"), call("c2", "approval"))
    return run, {**BODY, "agent": None, "conversation_id": run["conversation_id"], "input": "and?"}


@pytest.mark.parametrize("conflict", [{}, {"on_conflict": "enqueue"}])
async def test_a_message_behind_a_pending_action_is_refused_and_leaves_nothing(conflict: dict[str, str]) -> None:
    async with world() as api:
        run, follow = await _waiting_for_approval(api)
        headers = {"Idempotency-Key": "k"}
        problem = assert_problem(
            await api.client.post("/v1/runs", json={**follow, **conflict}, headers=headers), 409, "pending_action"
        )
        assert problem["run_id"] == run["id"]
        assert problem["pending_actions"] == run["pending_actions"]
        assert f"POST {run['links']['self']}/input" in problem["detail"]
        assert len((await api.client.get("/v1/runs")).json()["data"]) == 1
        decision = {"type": "approval", "action_id": "all", "decision": "approve"}
        await api.client.post(f"{run['links']['self']}/input", json={"items": [decision]})
        later = await api.client.post("/v1/runs", json={**follow, **conflict}, headers=headers)
        assert (later.status_code, later.json()["waiting"]["run_id"]) == (202, run["id"])


async def test_a_refused_message_tells_what_the_busy_run_waits_for() -> None:
    async with world() as api:
        run, follow = await _waiting_for_approval(api)
        refused = await api.client.post("/v1/runs", json={**follow, "on_conflict": "reject"})
        problem = assert_problem(refused, 409, "conversation_busy")
        assert (problem["run_id"], len(problem["pending_actions"])) == (run["id"], 2)


@pytest.mark.parametrize(("on_conflict", "withdrawn"), [("interrupt", False), ("rollback", True)])
async def test_a_new_message_can_take_the_place_of_all_before(on_conflict: str, withdrawn: bool) -> None:
    async with world() as api:
        run = await api.submit()
        follow = {**BODY, "agent": None, "conversation_id": run["conversation_id"]}
        queued = await api.submit(**follow)
        await api.ask(run, call("c1", "approval"))
        api.publisher.deliveries.clear()
        new = await api.submit(**{**follow, "on_conflict": on_conflict})
        assert [delivery.run_id for delivery in api.publisher.deliveries] == [new["id"]]
        ends = [await api.read(each) for each in (run, queued)]
        assert [(end["status"], end["cancel"]["mode"]) for end in ends] == [
            ("cancelled", "rollback" if withdrawn else "now")
        ] * 2
        assert (ends[0]["withdrawn"], ends[0]["pending_actions"]) == (withdrawn, [])


async def test_a_message_can_steer_the_active_run() -> None:
    async with world() as api:
        run = await api.submit()
        follow = {**BODY, "conversation_id": run["conversation_id"], "input": "In metres.", "on_conflict": "steer"}
        answer = await api.client.post("/v1/runs", json=follow)
        assert answer.status_code == 202
        assert answer.headers["palaver-steered"] == "true"
        assert answer.headers["location"] == run["links"]["self"]
        assert answer.json()["id"] == run["id"]
        waiting = asyncio.create_task(api.client.post("/v1/runs", json=follow, headers={"Prefer": "wait=10"}))
        await aeventually(api.watched)
        await api.finish(run)
        assert ((await waiting).status_code, (await waiting).headers["palaver-steered"]) == (200, "true")
        fresh = await api.client.post("/v1/runs", json=follow)
        assert (fresh.status_code, "palaver-steered" in fresh.headers) == (202, False)
        assert fresh.json()["id"] != run["id"]
