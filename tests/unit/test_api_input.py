"""What is put into a run in hand: decisions, outputs, the user's words, pause and resume."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from palaver.config.settings import Settings
from palaver.tools import tool
from tests.unit.api_world import AGENT, RUN_ID, World, assert_problem, call, in_one_world, world
from tests.waiting import aeventually

CLIENT = {**AGENT, "client_tools": [{"name": "open_file"}]}


async def _input(api: World, run: dict[str, Any], *items: dict[str, Any], **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.client.post(f"{run['links']['self']}/input", json={"items": items}, headers=sent)


def _decide(action: dict[str, Any] | str, decision: str, **more: Any) -> dict[str, Any]:
    action_id = action if isinstance(action, str) else action["id"]
    return {"type": "approval", "action_id": action_id, "decision": decision, **more}


def _output(call_id: str, output: object = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_output", "call_id": call_id, "output": output, **more}


async def _said(api: World, run: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await api.client.get(f"{run['links']['conversation']}/messages")
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def test_an_approval_lets_the_call_begin() -> None:
    async with world() as api:
        run = await api.ask(await api.submit(), call("c1", "approval"))
        [action] = run["pending_actions"]
        assert (run["status"], action["tool"], action["call_id"]) == ("requires_action", "calculator", "c1")
        api.publisher.deliveries.clear()
        answer = await _input(api, run, _decide(action, "approve", digest=action["digest"]))
        assert answer.status_code == 202
        assert answer.headers["retry-after"] == "1"
        assert (answer.json()["status"], answer.json()["pending_actions"]) == ("running", [])
        assert [each.step for each in api.publisher.deliveries] == ["1/c1"]


async def test_a_denial_is_told_to_the_model_with_its_reason() -> None:
    async with world() as api:
        run = await api.ask(await api.submit(), call("c1", "approval"), call("c2", "approval"))
        answer = await _input(api, run, _decide("all", "deny", reason="Not today."))
        assert answer.status_code == 202, answer.text
        results = [message for message in await _said(api, run) if message["role"] == "tool"]
        assert [(result["call_id"], result["is_error"]) for result in results] == [("c1", True), ("c2", True)]
        assert all("Not today." in result["content"] for result in results)
        assert [each.step for each in api.publisher.deliveries][-1] == "2"


async def test_an_edited_call_runs_with_the_new_arguments() -> None:
    async with world() as api:
        run = await api.ask(await api.submit(), call("c1", "approval"))
        edit = _decide(run["pending_actions"][0], "edit", arguments={"expression": "3+3"})
        assert (await _input(api, run, edit)).status_code == 202
        lease = await api.store.steps.claim(
            run["id"], run["conversation_id"], "1/c1", queues=("tools",), worker="w", nonce="n", known=None
        )
        assert orjson.loads(lease.call.arguments) == {"expression": "3+3"}  # type: ignore[union-attr]


@in_one_world(
    [
        ({}, "/expression", "is required"),
        ({"expression": 5}, "/expression", 'is not of type "string"'),
        ({"expression": "1" * 501}, "/expression", "longer than 500 characters"),
        ({"expression": "1", "expresion": "1"}, "/expresion", "did you mean 'expression'?"),
    ]
)
async def test_arguments_that_do_not_fit_the_tool_are_refused(
    api: World, arguments: dict[str, Any], place: str, says: str
) -> None:
    run = await api.ask(await api.submit(), call("c1", "approval"), call("c2", "approval"))
    deny, edit = run["pending_actions"]
    answer = await _input(api, run, _decide(deny, "deny"), _decide(edit, "edit", arguments=arguments))
    problem = assert_problem(answer, 422, "invalid_arguments", f"/items/1/arguments{place}")
    assert says in problem["errors"][0]["message"]
    assert len((await api.read(run))["pending_actions"]) == 2


async def test_arguments_that_cannot_be_checked_are_refused() -> None:
    @tool
    def send(to: str) -> str:
        """Send something."""
        return to

    async with world(tools=(send,)) as api:
        run = await api.ask(await api.submit(agent={**AGENT, "tools": ["send"]}), call("c1", "approval"))
        edit = _decide(run["pending_actions"][0], "edit", arguments={"expression": "1"})
        problem = assert_problem(await _input(api, run, edit), 422, "unknown_tool", "/items/0/arguments")
        assert "no worker has the tool any more" in problem["detail"]


async def test_outputs_of_the_client_come_one_by_one_and_in_any_order() -> None:
    async with world() as api:
        asked = [call(name, "client_tool", "open_file") for name in ("c1", "c2", "c3")]
        run = await api.ask(await api.submit(agent=CLIENT), *asked)
        assert [action["type"] for action in run["pending_actions"]] == ["client_tool"] * 3
        assert (await _input(api, run, _output("c3", {"lines": 12}))).json()["status"] == "requires_action"
        first = run["pending_actions"][0]["id"]
        later = await _input(api, run, _output("c2", "no such file", is_error=True), _output(first))
        assert (later.json()["status"], later.json()["pending_actions"]) == ("running", [])
        results = {message["call_id"]: message for message in await _said(api, run) if message["role"] == "tool"}
        assert orjson.loads(results["c3"]["content"]) == {"lines": 12}
        assert (results["c2"]["content"], results["c2"]["is_error"]) == ("no such file", True)
        assert (results["c1"]["content"], results["c1"]["is_error"]) == ("done", False)


@pytest.mark.parametrize(
    ("agent", "shown"), [({}, 30_000), ({"max_tool_result": 2_000}, 2_000)], ids=["usual", "agent"]
)
async def test_of_a_long_output_the_model_sees_what_it_does_of_any_result(agent: dict[str, Any], shown: int) -> None:
    async with world() as api:
        asked = [call(name, "client_tool", "open_file") for name in ("c1", "c2")]
        run = await api.ask(await api.submit(agent={**CLIENT, **agent}), *asked)
        texts = {"c1": "a" * shown, "c2": "b" * shown + "c" * 10}
        for _ in range(2):
            answer = await _input(api, run, *(_output(name, text) for name, text in texts.items()), Idempotency_Key="k")
            assert answer.status_code == 202, answer.text
        results = {
            message["call_id"]: message["content"] for message in await _said(api, run) if message.get("call_id")
        }
        assert results["c1"] == texts["c1"]
        note = f"\n[cut: 10 of {shown + 10:,} characters are left out here]\n"
        assert results["c2"] == "b" * (shown // 2) + note + "b" * (shown // 2 - 10) + "c" * 10


async def test_words_into_a_run_are_marked_in_its_conversation() -> None:
    async with world() as api:
        run = await api.submit()
        assert (await _input(api, run, {"type": "message", "content": "In metres."})).status_code == 202
        await api.finish(run)
        said = [(message["content"], message["steer"], message["withdrawn"]) for message in await _said(api, run)]
        assert said[:2] == [("hello", False, False), ("In metres.", True, False)]


async def test_a_paused_run_keeps_still_until_it_is_resumed() -> None:
    async with world() as api:
        run = await api.submit()
        lease = await api.claim(run)
        asked = (await _input(api, run, {"type": "pause"})).json()
        assert (asked["status"], asked["pausing"]) == ("running", True)
        waiting = asyncio.create_task(api.client.get(f"{run['links']['self']}?wait=10&until=action"))
        await aeventually(api.watched)
        await api.go_on(lease)
        assert (await waiting).json()["status"] == "paused"
        api.publisher.deliveries.clear()
        resumed = await _input(api, run, {"type": "resume"})
        assert (resumed.status_code, resumed.json()["status"]) == (202, "running")
        assert [each.step for each in api.publisher.deliveries] == ["2"]


async def test_whoever_waits_for_an_action_hears_of_it_while_other_calls_run() -> None:
    async with world() as api:
        run = await api.submit()
        waiting = asyncio.create_task(api.client.get(f"{run['links']['self']}?wait=10"))
        await aeventually(api.watched)
        await api.ask(run, call("c1", "approval"), call("c2"))
        seen = (await waiting).json()
        assert (seen["status"], [action["call_id"] for action in seen["pending_actions"]]) == ("running", ["c1"])


async def test_the_same_key_again_has_no_second_effect() -> None:
    async with world() as api:
        run = await api.ask(await api.submit(), call("c1", "approval"))
        approve = _decide(run["pending_actions"][0], "approve")
        first = await _input(api, run, approve, idempotency_key="mail 17")
        again = await _input(api, run, approve, idempotency_key="mail 17")
        assert (first.status_code, again.status_code) == (202, 202)
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        other = await _input(api, run, {"type": "pause"}, idempotency_key="mail 17")
        assert_problem(other, 422, "idempotency_key_reused")
        assert_problem(await _input(api, run, approve, idempotency_key=" "), 400, "invalid_idempotency_key")
        assert_problem(await _input(api, run, approve), 409, "action_already_resolved")


async def test_an_edit_is_the_same_again_after_its_action_is_gone() -> None:
    async with world() as api:
        run = await api.ask(await api.submit(), call("c1", "approval"))
        edit = _decide(run["pending_actions"][0], "edit", arguments={"expression": "3+3"})
        for replayed in (None, "true"):
            answer = await _input(api, run, edit, idempotency_key="k")
            assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (202, replayed)


@in_one_world(
    [
        ([_decide("nothing", "approve")], 409, "unknown_action", "pending_actions"),
        ([_output("nothing")], 409, "unknown_action", "pending_actions"),
        ([_decide("{approval}", "approve", digest="0" * 64)], 409, "digest_mismatch", "arguments"),
        ([_output("c1")], 409, "wrong_action", "The type of a pending action"),
        ([_decide("{client}", "deny")], 409, "wrong_action", "The type of a pending action"),
        ([{"type": "resume"}], 409, "not_paused", "not paused"),
        ([_decide("all", "approve"), _decide("all", "deny")], 422, "duplicate_item", "all approvals"),
        ([_output("c2"), _output("c2")], 422, "duplicate_item", "before"),
        ([_decide("all", "deny"), _decide("{approval}", "approve")], 409, "action_already_resolved", "counts"),
        ([{"type": "message", "content": " \n"}], 422, "empty_input", "says nothing"),
        ([{"type": "pause"}, _output("nothing")], 409, "unknown_action", "pending_actions"),
    ]
)
async def test_what_cannot_be_taken_says_why_and_what_is_pending(
    api: World, items: list[dict[str, Any]], status: int, code: str, says: str
) -> None:
    asked = (call("c1", "approval"), call("c2", "client_tool", "open_file"))
    run = await api.ask(await api.submit(agent=CLIENT), *asked)
    ids = {"{approval}": run["pending_actions"][0]["id"], "{client}": run["pending_actions"][1]["id"]}
    sent = [{name: ids.get(value, value) if isinstance(value, str) else value for name, value in item.items()}
            for item in items]  # fmt: skip
    problem = assert_problem(await _input(api, run, *sent), status, code)
    assert says in problem["detail"]
    if status == 409:
        assert problem["run_id"] == run["id"]
        assert problem["pending_actions"] == run["pending_actions"]
    assert await api.read(run) == run


async def test_a_decision_that_comes_too_late_is_gone() -> None:
    async with world() as api:
        run = await api.ask(await api.submit(), call("c1", "approval", timeout=0))
        [action] = run["pending_actions"]
        answer = await _input(api, run, _decide(action, "approve"))
        problem = assert_problem(answer, 410, "action_expired")
        assert "in time" in problem["detail"]


async def test_a_run_that_waits_for_nothing_has_nothing_to_approve() -> None:
    async with world() as api:
        run = await api.submit()
        problem = assert_problem(await _input(api, run, _decide("all", "approve")), 409, "no_pending_action")
        assert problem["pending_actions"] == []


@in_one_world([{"type": "pause"}, {"type": "resume"}, {"type": "message", "content": "?"}, _decide("all", "approve")])
async def test_a_run_that_has_ended_takes_nothing_in(api: World, item: dict[str, Any]) -> None:
    run = await api.submit()
    await api.finish(run)
    problem = assert_problem(await _input(api, run, item), 409, "run_ended")
    assert "completed" in problem["detail"]


@pytest.mark.parametrize("item", [{"type": "pause"}, _decide("act_1", "edit", arguments={})])
async def test_a_run_that_is_not_there_takes_nothing_in(item: dict[str, Any]) -> None:
    async with world() as api:
        for run_id in (RUN_ID, "x"):
            answer = await api.client.post(f"/v1/runs/{run_id}/input", json={"items": [item]})
            assert_problem(answer, 404, "run_not_found")


@in_one_world(
    [
        ({}, "/items", "is required"),
        ({"items": []}, "/items", "at least 1 item"),
        ({"items": {}}, "/items", "must be a list"),
        ({"items": ["pause"]}, "/items/0", "must be an object"),
        ({"items": [{}]}, "/items/0/type", "approval, tool_output, answer, message, pause, resume"),
        (
            {"items": [{"type": "stop CANARY"}]},
            "/items/0/type",
            "approval, tool_output, answer, message, pause, resume",
        ),
        ({"items": [{"type": "pause", "nwo": True}]}, "/items/0/nwo", "did you mean 'now'?"),
        ({"items": [{"type": "pause", "now": 1}]}, "/items/0/now", "must be a valid boolean"),
        ({"items": [{"type": "message"}]}, "/items/0/content", "is required"),
        ({"items": [_decide("a", "edit")]}, "/items/0", "which needs them"),
        ({"items": [_decide("a", "approve", arguments={})]}, "/items/0", "for the decision edit"),
        ({"items": [_decide("all", "edit", arguments={})]}, "/items/0", "name its action_id"),
        ({"items": [_decide("a", "approve", reason="CANARY")]}, "/items/0", "for the decision deny"),
        ({"items": [_decide("a", "allow")]}, "/items/0/decision", "'approve', 'deny' or 'edit'"),
        ({"items": [_decide("a", "deny", reson="CANARY")]}, "/items/0/reson", "did you mean 'reason'?"),
        ({"items": [{"type": "pause"}] * 201}, "/items", "at most 200"),
    ]
)
async def test_an_input_that_does_not_fit_is_refused(api: World, body: dict[str, Any], place: str, says: str) -> None:
    run = await api.submit()
    answer = await api.client.post(f"{run['links']['self']}/input", json=body)
    problem = assert_problem(answer, 422, "validation_error", place)
    assert says in problem["errors"][0]["message"]
    assert "CANARY" not in answer.text


async def test_the_decision_says_whose_key_decided() -> None:
    async with world(Settings(redis_url="redis://fake/0", api_keys="ops=key-of-the-operators")) as api:
        api.client.headers["Authorization"] = "Bearer key-of-the-operators"
        run = await api.ask(await api.submit(), call("c1", "approval"))
        assert (await _input(api, run, _decide("all", "approve"))).status_code == 202
        page = await api.client.get(run["links"]["events"], headers={"Accept": "application/json"})
        [resolved] = [event for event in page.json()["data"] if event["type"] == "action.resolved"]
        assert (resolved["by"], resolved["decision"], resolved["call_id"]) == ("ops", "approve", "c1")


async def test_an_input_starts_the_run_behind_if_it_ends_this_one() -> None:
    async with world() as api:
        run = await api.submit(agent={**CLIENT, "max_steps": 1})
        behind = await api.submit(agent=None, conversation_id=run["conversation_id"])
        await api.ask(run, call("c1", "client_tool", "open_file"))
        api.publisher.deliveries.clear()
        answer = await _input(api, run, _output("c1"))
        assert (answer.status_code, answer.json()["status"]) == (200, "incomplete")
        assert [each.run_id for each in api.publisher.deliveries] == [behind["id"]]
