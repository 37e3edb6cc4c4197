"""Going on with a run that has ended, forking it, and deleting what is over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from palaver.config.providers import Provider
from palaver.errors import ErrorClass
from palaver.schemas.models import Message
from palaver.steps.verdicts import Continue, ToolOutcome
from tests.unit.api_world import AGENT, BODY, CONVERSATION_ID, RUN_ID, World, assert_problem, call, world

AN_HOUR_AGO = (datetime.now(UTC) - timedelta(hours=1)).isoformat()


async def _retry(api: World, run: dict[str, Any], key: str | None = None, **wanted: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return await api.client.post(f"{run['links']['self']}/retry", json=wanted, headers=headers)


async def _two_steps(api: World) -> dict[str, Any]:
    """A run whose model asked for a tool, got its result, and failed."""
    run = await api.submit(input="2+2?")
    lease, asked = await api.claim(run), call("c1")
    result = Message(role="tool", content="4", call_id="c1", name="calculator")
    message = Message(role="assistant", content="let me see", tool_calls=(asked.call,))
    await api.store.steps.settle(lease, Continue(message, outcomes=(ToolOutcome(result),)))
    await api.fail(run)
    return run


async def _said(api: World, run: dict[str, Any]) -> list[str]:
    answer = await api.client.get(f"{run['links']['conversation']}/messages")
    return [message["content"] for message in answer.json()["data"]]


@pytest.mark.parametrize("body", [None, {}])
async def test_a_failed_run_is_gone_on_with_by_a_new_one(body: dict[str, Any] | None) -> None:
    async with world() as api:
        old = await _two_steps(api)
        failed = await api.read(old)
        api.publisher.deliveries.clear()
        answer = await api.client.post(f"{old['links']['self']}/retry", json=body)
        assert answer.status_code == 202
        new = answer.json()
        assert answer.headers["location"] == new["links"]["self"] != old["links"]["self"]
        assert answer.headers["retry-after"] == "1"
        assert (new["retried_from"], new["conversation_id"]) == (old["id"], old["conversation_id"])
        assert [each.run_id for each in api.publisher.deliveries] == [new["id"]]
        assert await api.read(old) == {**failed, "retried_as": new["id"]}
        await api.finish(new, "It is 4.")
        assert await _said(api, new) == ["2+2?", "let me see", "4", "It is 4."]


async def test_a_retry_may_have_another_agent_budget_and_deadline() -> None:
    async with world() as api:
        old = await _two_steps(api)
        ends = datetime.now(UTC) + timedelta(hours=2)
        wanted: dict[str, Any] = {
            "agent": {"model": "fake/other", "retry": "patient"},
            "budget": {"tokens": 500},
            "deadline": ends.isoformat(),
        }
        new = (await _retry(api, old, **wanted)).json()
        assert (new["agent"]["model"], new["budget"]["tokens"]) == ("fake/other", 500)
        assert new["agent"]["retry"]["rules"]["rate_limited"]["attempts"] == 20
        assert abs(datetime.fromisoformat(new["times"]["deadline"]) - ends) < timedelta(milliseconds=2)


async def test_the_same_key_again_is_the_same_retry() -> None:
    async with world() as api:
        old = await _two_steps(api)
        first, again = [await _retry(api, old, "key 1") for _ in range(2)]
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["location"] == first.headers["location"]
        assert_problem(await _retry(api, old, "key 1", budget={"tokens": 1}), 422, "idempotency_key_reused")
        assert_problem(await _retry(api, old), 409, "conversation_moved_on")


async def test_two_retries_at_once_make_one_run() -> None:
    async with world() as api:
        old = await _two_steps(api)
        answers = await asyncio.gather(*(_retry(api, old) for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [202, 409, 409, 409, 409]


async def test_a_fork_has_everything_before_its_step_and_goes_another_way() -> None:
    async with world() as api:
        old = await _two_steps(api)
        answer = await _retry(api, old, from_step=1, input="3+3?")
        assert answer.status_code == 202
        new = answer.json()
        assert new["retried_from"] == old["id"]
        assert new["conversation_id"] != old["conversation_id"]
        await api.finish(new, "6")
        assert await _said(api, new) == ["2+2?", "3+3?", "6"]
        assert await _said(api, old) == ["2+2?", "let me see", "4"]


async def test_a_step_that_is_not_there_cannot_be_forked_from() -> None:
    async with world() as api:
        old = await _two_steps(api)
        problem = assert_problem(await _retry(api, old, from_step=9), 422, "unknown_step", "/from_step")
        assert "came to step 2" in problem["detail"]


async def test_what_cannot_be_retried_says_why_and_what_to_do() -> None:
    async with world() as api:
        run = await api.submit()
        active = assert_problem(await _retry(api, run), 409, "run_active")
        assert (active["run_id"], "has ended" in active["detail"]) == (run["id"], True)
        await api.finish(run)
        done = assert_problem(await _retry(api, run), 409, "nothing_to_retry")
        assert "completed" in done["detail"]
        failed = await _two_steps(api)
        await api.submit(agent=None, conversation_id=failed["conversation_id"])
        moved = assert_problem(await _retry(api, failed), 409, "conversation_moved_on")
        assert "from_step" in moved["detail"]
        for run_id in (RUN_ID, "x"):
            assert_problem(await api.client.post(f"/v1/runs/{run_id}/retry"), 404, "run_not_found")


@pytest.mark.parametrize(
    ("wanted", "code", "place"),
    [
        ({"input": "hi"}, "validation_error", ""),
        ({"from_step": 0}, "validation_error", "/from_step"),
        ({"from_step": "1"}, "validation_error", "/from_step"),
        ({"from_stop": 1}, "validation_error", "/from_stop"),
        ({"from_step": 1, "input": " "}, "empty_input", "/input"),
        ({"agent": {"model": "fak/a"}}, "unknown_provider", "/agent/model"),
        ({"agent": {"model": "fake/a", "tools": ["x"]}}, "unknown_tool", "/agent/tools/0"),
        ({"agent": {"model": "fake/a"}, "budget": {"cost_usd": 1}}, "unknown_price", "/agent/model"),
        ({"budget": {"cost_usd": 1}}, "unknown_price", "/budget/cost_usd"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "invalid_time", "/deadline"),
        ({"deadline": AN_HOUR_AGO}, "invalid_time", "/deadline"),
        ({"deadline": AN_HOUR_AGO, "from_step": 2}, "invalid_time", "/deadline"),
        ({"deadline": "2999-01-01T00:00:00"}, "invalid_time", "/deadline"),
    ],
)
async def test_a_retry_that_does_not_fit_is_refused(wanted: dict[str, Any], code: str, place: str) -> None:
    async with world() as api:
        old = await _two_steps(api)
        assert_problem(await _retry(api, old, **wanted), 422, code, place)
        assert len((await api.client.get("/v1/runs")).json()["data"]) == 1


async def test_a_budget_in_dollars_is_fine_where_there_are_prices() -> None:
    prices = {"tool-20": {"input": 1.0, "output": 2.0}}
    async with world(providers={"fake": Provider(base_url="http://127.0.0.1:1/v1", prices=prices)}) as api:
        old = await _two_steps(api)
        assert (await _retry(api, old, budget={"cost_usd": 1.5})).status_code == 202


async def test_a_run_that_has_ended_can_be_deleted() -> None:
    async with world() as api:
        run = await api.submit()
        active = assert_problem(await api.client.delete(run["links"]["self"]), 409, "run_active")
        assert active["run_id"] == run["id"]
        await api.finish(run)
        gone = await api.client.delete(run["links"]["self"])
        assert (gone.status_code, gone.content) == (204, b"")
        for path in ("self", "events"):
            assert_problem(await api.client.get(run["links"][path]), 404, "run_not_found")
        assert_problem(await api.client.delete(run["links"]["self"]), 404, "run_not_found")
        assert (await api.client.get("/v1/runs")).json()["data"] == []
        assert await _said(api, run) == []
        assert_problem(await api.client.delete("/v1/runs/x"), 404, "run_not_found")


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_key_whose_run_was_deleted_says_so(accept: str) -> None:
    async with world() as api:
        headers = {"Idempotency-Key": "order 66"}
        run = (await api.client.post("/v1/runs", json=BODY, headers=headers)).json()
        await api.finish(run)
        await api.client.delete(run["links"]["self"])
        again = await api.client.post("/v1/runs", json=BODY, headers={**headers, "Accept": accept})
        assert "use a new key" in assert_problem(again, 404, "run_not_found")["detail"]


async def test_a_conversation_without_unfinished_runs_can_be_deleted() -> None:
    async with world() as api:
        run = await api.submit()
        path = run["links"]["conversation"]
        busy = assert_problem(await api.client.delete(path), 409, "conversation_busy")
        assert "ancel" in busy["detail"]
        await api.fail(run, ErrorClass.PERMISSION)
        assert (await api.client.delete(path)).status_code == 204
        assert_problem(await api.client.get(path), 404, "conversation_not_found")
        assert_problem(await api.client.get(run["links"]["self"]), 404, "run_not_found")
        for missing in (path, f"/v1/conversations/{CONVERSATION_ID}", "/v1/conversations/x"):
            assert_problem(await api.client.delete(missing), 404, "conversation_not_found")
        follow = {"agent": AGENT, "input": "still there?", "conversation_id": run["conversation_id"]}
        assert_problem(await api.client.post("/v1/runs", json=follow), 422, "unknown_conversation")
