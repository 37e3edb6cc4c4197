"""Cancelling a run: acknowledged, counted, idempotent, and refused where it cannot be."""

from __future__ import annotations

import time

import orjson

from tests.unit.api_world import LiveRequest, World, assert_problem, in_one_world, world
from tests.waiting import aeventually


async def test_cancelling_a_run_that_nobody_works_on_ends_it() -> None:
    async with world() as api:
        run = await api.submit()
        path = f"{run['links']['self']}/cancel"
        first = await api.client.post(path, json={"reason": "changed my mind"})
        assert first.status_code == 200
        assert (first.json()["status"], first.json()["cancel"]["reason"]) == ("cancelled", "changed my mind")
        again = await api.client.post(path)
        assert (again.status_code, again.json()) == (200, first.json())


async def test_cancelling_a_run_that_is_worked_on_is_acknowledged_and_wins() -> None:
    async with world() as api:
        run = await api.submit()
        lease = await api.claim(run)
        path = f"{run['links']['self']}/cancel"
        first = await api.client.post(path)
        again = await api.client.post(path, content=b"")
        assert (first.status_code, again.status_code) == (202, 202)
        assert first.json()["status"] == again.json()["status"] == "cancelling"
        await api.finish(run, lease=lease)
        assert (await api.read(run))["status"] == "cancelled"
        assert (await api.client.post(path)).status_code == 200


async def test_a_stronger_cancel_takes_over_from_a_weaker_one() -> None:
    async with world() as api:
        run = await api.submit()
        lease = await api.claim(run)
        path = f"{run['links']['self']}/cancel"
        for asked, holds in (("graceful", "graceful"), ("rollback", "rollback"), ("now", "rollback")):
            answer = await api.client.post(path, json={"mode": asked}, headers={"Idempotency-Key": asked})
            assert (answer.status_code, answer.json()["status"]) == (202, "cancelling")
            assert answer.json()["cancel"]["mode"] == holds
        await api.finish(run, lease=lease)
        ended = await api.read(run)
        assert (ended["status"], ended["withdrawn"]) == ("cancelled", True)
        said = (await api.client.get(f"{run['links']['conversation']}/messages")).json()["data"]
        assert {message["withdrawn"] for message in said} == {True}


async def test_a_cancel_tells_how_long_it_took_to_hold() -> None:
    async with world() as api:
        run = await api.submit()
        head = {"content-type": "application/json"}
        slow = LiveRequest(api.app, "POST", f"{run['links']['self']}/cancel", head)
        slow.feed(b'{"mode": "now"')
        await aeventually(lambda: slow._messages.empty())  # The application has taken it.
        arrived = time.monotonic()
        await aeventually(lambda: time.monotonic() - arrived > 0.1)
        slow.feed(b"}")
        slow.end()
        await slow.task
        cancel = orjson.loads(slow.body)["cancel"]
        assert 100 <= cancel["acked_ms"] <= (time.monotonic() - arrived + 1) * 1000
        assert cancel["stopped_ms"] >= cancel["acked_ms"]


async def test_a_cancel_with_a_key_that_cannot_be_is_refused() -> None:
    async with world() as api:
        run = await api.submit()
        answer = await api.client.post(f"{run['links']['self']}/cancel", headers={"Idempotency-Key": " "})
        assert_problem(answer, 400, "invalid_idempotency_key")
        assert (await api.read(run))["status"] == "queued"


async def test_cancelling_a_run_that_ended_otherwise_says_how() -> None:
    async with world() as api:
        run = await api.submit()
        await api.finish(run)
        problem = assert_problem(await api.client.post(f"{run['links']['self']}/cancel"), 409, "run_ended")
        assert problem["run_id"] == run["id"]
        assert "completed" in problem["detail"]


async def test_a_cancel_starts_the_run_behind() -> None:
    async with world() as api:
        first = await api.submit()
        second = await api.submit(agent=None, conversation_id=first["conversation_id"])
        api.publisher.deliveries.clear()
        await api.client.post(f"{first['links']['self']}/cancel")
        assert [delivery.run_id for delivery in api.publisher.deliveries] == [second["id"]]
        assert (await api.read(second))["waiting"] is None


@in_one_world([{"mode": "hard"}, {"mode": None}, {"reason": 5}, {"grace": 1}, [], "now"])
async def test_a_cancel_that_is_not_understood_is_refused(api: World, body: object) -> None:
    run = await api.submit()
    answer = await api.client.post(f"{run['links']['self']}/cancel", json=body)
    problem = assert_problem(answer, 422, "validation_error")
    if isinstance(body, dict) and body.get("mode"):
        assert "'now'" in problem["errors"][0]["message"]
    assert (await api.read(run))["status"] == "queued"
