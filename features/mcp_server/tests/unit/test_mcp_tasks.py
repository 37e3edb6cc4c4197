"""Runs as tasks of the Model Context Protocol, for hosts that know them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Final

import pytest

from palaver.errors import NoWorker, classify
from palaver.steps.leases import Lease
from palaver.steps.verdicts import GiveUp, Postpone
from palaver.vocabulary.lifecycle import StopReason, WaitReason
from tests.unit.api_world import AGENT, RUN_ID, World, call
from tests.unit.mcp_host import PREFIX, TASKS, WITH_TASKS, Host, hosted, publish, run_of
from tests.unit.test_api_actions_below import call_agent
from tests.waiting import aeventually

FORM: Final = {"action": "accept", "content": {"approve": True}}


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with hosted() as made:
        yield made


@pytest.fixture
def host(api: World) -> Host:
    return Host(api.client, WITH_TASKS)


async def begun(host: Host) -> str:
    """The id of a new task."""
    task = await host.call("agent_support", message="hello")
    assert task["resultType"] == "task"
    assert task["status"] == "working"
    task_id: str = task["taskId"]
    return task_id


async def get(host: Host, task_id: str) -> dict[str, Any]:
    """The task as it is now."""
    return await host.result("tasks/get", {"taskId": task_id})


async def update(host: Host, task_id: str, **responses: Any) -> None:
    """Answer forms of it."""
    done = await host.result("tasks/update", {"taskId": task_id, "inputResponses": responses})
    assert done == {"resultType": "complete"}


async def error(host: Host, method: str, **params: Any) -> tuple[int, int]:
    """The statuses of HTTP and JSON-RPC of a request that is refused."""
    answer = await host.send(method, params)
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_task_is_there_from_its_start_to_its_end(api: World, host: Host) -> None:
    started = await host.call("run_start", agent="support", message="hello")
    task_id = started["taskId"]
    task = await get(host, task_id)
    assert {**task, "resultType": "task"} == started
    assert set(task) <= {
        "resultType", "taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs",
    }  # fmt: skip
    assert 1_000 <= task["pollIntervalMs"] <= 5_000
    assert task["ttlMs"] > 7 * 86_400_000
    await api.finish(await run_of(api, task_id), "all done")
    task = await get(host, task_id)
    assert (task["status"], task["resultType"]) == ("completed", "complete")
    result = task["result"]
    assert (result["isError"], result["structuredContent"]["result"]) == (False, "all done")
    assert result["structuredContent"] == (await host.call("run_get", run_id=task_id))["structuredContent"]
    ended = datetime.fromisoformat(task["lastUpdatedAt"]) - datetime.fromisoformat(task["createdAt"])
    assert 7 * 86_400_000 <= task["ttlMs"] <= 7 * 86_400_000 + ended.total_seconds() * 1000 + 1_000


async def test_a_run_that_failed_is_a_task_that_completed_with_an_error(api: World, host: Host) -> None:
    task_id = await begun(host)
    await api.fail(await run_of(api, task_id))
    task = await get(host, task_id)
    assert (task["status"], task["result"]["isError"]) == ("completed", True)
    assert task["result"]["structuredContent"]["status"] == "failed"


async def test_what_waits_for_somebody_is_a_form(api: World, host: Host) -> None:
    task_id = await begun(host)
    run = await api.ask(await run_of(api, task_id), call("c1", "approval"), call("c2", "client_tool"))
    approval, output = [action["id"] for action in run["pending_actions"]]
    task = await get(host, task_id)
    assert (task["status"], set(task["inputRequests"])) == ("input_required", {approval, output})
    for request in task["inputRequests"].values():
        assert (request["method"], request["params"]["mode"]) == ("elicitation/create", "form")
        assert "calculator" in request["params"]["message"]
        schema = request["params"]["requestedSchema"]
        assert {each["type"] for each in schema["properties"].values()} <= {"string", "boolean"}
    await update(host, task_id, **{approval: {"action": "cancel"}, "act_never": FORM})
    assert set((await get(host, task_id))["inputRequests"]) == {approval, output}
    await update(host, task_id, **{approval: FORM})
    assert set((await get(host, task_id))["inputRequests"]) == {output}
    await update(host, task_id, **{approval: FORM, output: {"action": "accept", "content": {"output": "12"}}})
    assert (await get(host, task_id))["status"] == "working"
    results = (await api.client.get(f"/v1/runs/{task_id}/events", headers={"accept": "application/json"})).json()
    assert "12" in str(results)


@pytest.mark.parametrize(
    "response",
    [{"action": "decline"}, {"action": "accept", "content": {"approve": False, "reason": "no"}}],
)
async def test_a_form_that_is_declined_denies_the_call(api: World, host: Host, response: Mapping[str, Any]) -> None:
    task_id = await begun(host)
    run = await api.ask(await run_of(api, task_id), call("c1", "approval"), call("c2", "client_tool"))
    approval, output = [action["id"] for action in run["pending_actions"]]
    await update(host, task_id, **{approval: response, output: {"action": "decline"}})
    told = await host.call("run_get", run_id=task_id, after=0)
    finished = [each for each in told["structuredContent"]["events"] if each["type"] == "tool.finished"]
    assert [each["message"]["is_error"] for each in finished] == [True, True]


@pytest.mark.parametrize(
    "response",
    [
        None,
        {},
        {"action": "perhaps"},
        {"action": "accept"},
        {"action": "accept", "content": {"approve": "yes"}},
        {"action": "accept", "content": {"approve": False, "reason": 7}},
        {"action": "accept", "content": {"approve": False, "reason": "x" * 100_000}},
    ],
)
async def test_a_response_that_does_not_fit_changes_nothing(
    api: World, host: Host, monkeypatch: pytest.MonkeyPatch, response: Any
) -> None:
    monkeypatch.setitem(api.app.state.backend.settings.__dict__, "max_body", 1 << 20)
    task_id = await begun(host)
    run = await api.ask(await run_of(api, task_id), call("c1", "approval"))
    params = {"taskId": task_id, "inputResponses": {run["pending_actions"][0]["id"]: response}}
    assert await error(host, "tasks/update", **params) == (200, -32602)
    assert (await run_of(api, task_id))["pending_actions"] == run["pending_actions"]


async def test_an_output_needs_its_field_and_responses_are_an_object_of_some(api: World, host: Host) -> None:
    task_id = await begun(host)
    run = await api.ask(await run_of(api, task_id), call("c1", "client_tool"))
    action = run["pending_actions"][0]["id"]
    given: list[Any] = [{action: {"action": "accept", "content": {}}}, [], None, {str(n): FORM for n in range(201)}]
    for responses in given:
        assert await error(host, "tasks/update", taskId=task_id, inputResponses=responses) == (200, -32602)


async def test_a_host_without_forms_sees_that_somebody_else_has_to_answer(api: World) -> None:
    host = Host(api.client, {"extensions": {TASKS: {}}})
    task_id = await begun(host)
    await api.ask(await run_of(api, task_id), call("c1", "approval"))
    task = await get(host, task_id)
    assert (task["status"], task["statusMessage"], "inputRequests" in task) == ("working", "approval", False)
    by_url = Host(api.client, {"extensions": {TASKS: {}}, "elicitation": {"url": {}}})
    assert (await get(by_url, task_id))["status"] == "working"
    forms = Host(api.client, {"extensions": {TASKS: {}}, "elicitation": {"form": {}}})
    assert (await get(forms, task_id))["status"] == "input_required"


@pytest.mark.slow
async def test_what_waits_below_is_asked_and_answered_above(api: World, host: Host) -> None:
    await publish(api, "researcher", **AGENT)
    await publish(api, "support", **{**AGENT, "tools": ["calculator", "agent:researcher"]})
    task_id = await begun(host)
    children = await call_agent(api, await run_of(api, task_id), "c1", "c2")
    for child in children:
        await api.ask(child, call("a1", "approval"))
    requests = (await get(host, task_id))["inputRequests"]
    assert len(requests) == 2
    first, second = requests
    await update(host, task_id, **{first: {"action": "accept", "content": {"approve": True}}})
    answers = [{"action_id": second, "decision": "deny"}]
    state = await host.call("run_answer", run_id=task_id, answers=answers)
    assert (state["isError"], state["structuredContent"]["status"]) == (False, "working")
    for child in children:
        assert (await run_of(api, child["id"]))["pending_actions"] == []


async def test_a_cancel_is_a_wish(api: World, host: Host) -> None:
    task_id = await begun(host)
    for _ in range(2):
        assert await host.result("tasks/cancel", {"taskId": task_id}) == {"resultType": "complete"}
        assert (await get(host, task_id))["status"] == "cancelled"
    assert "result" not in await get(host, task_id)
    task_id = await begun(host)
    await api.finish(await run_of(api, task_id))
    assert await host.result("tasks/cancel", {"taskId": task_id}) == {"resultType": "complete"}
    assert (await get(host, task_id))["status"] == "completed"


async def test_what_came_too_late_is_acknowledged(api: World, host: Host) -> None:
    task_id = await begun(host)
    run = await api.ask(await run_of(api, task_id), call("c1", "approval"))
    await update(host, task_id, **{run["pending_actions"][0]["id"]: FORM})
    await update(host, task_id, **{run["pending_actions"][0]["id"]: FORM})
    await host.result("tasks/cancel", {"taskId": task_id})
    await update(host, task_id, **{run["pending_actions"][0]["id"]: FORM})


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_tasks_are_for_who_knows_them_and_are_there(api: World, host: Host, method: str) -> None:
    for task_id in (RUN_ID, "x", "run_" + "9" * 500):
        assert await error(host, method, taskId=task_id, inputResponses={}) == (200, -32602)
    for number, name in ((7, "7"), (RUN_ID, RUN_ID[:-1] + "1")):
        other = await host.send(method, {"taskId": number}, **{"mcp-name": name})
        assert (other.status_code, other.json()["error"]["code"]) == (400, -32020)
    answer = await Host(api.client, {}).send(method, {"taskId": RUN_ID, "inputResponses": {}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32021)
    assert answer.json()["error"]["data"] == {
        "requiredCapabilities": {"extensions": {f"{PREFIX}tasks": {}}},
        "code": "missing_capability",
        "request_id": answer.headers["x-request-id"],
    }
    assert await error(Host(api.client), method, taskId=RUN_ID) == (200, -32601)


async def test_a_host_that_does_not_know_tasks_gets_none(api: World) -> None:
    several: list[Any] = [None, {}, {"extensions": {}}, {"extensions": [TASKS]}]
    for capabilities in several:
        result = await Host(api.client, capabilities).call("agent_support", message="hello")
        assert "taskId" not in result
        assert result["structuredContent"]["status"] == "working"


async def test_a_task_is_found_without_its_name_in_a_header(api: World, host: Host) -> None:
    task_id = await begun(host)
    answer = await host.send("tasks/get", {"taskId": task_id})
    sent = answer.request
    headers = {name: value for name, value in sent.headers.items() if name != "mcp-name"}
    again = await api.client.post("/mcp", content=sent.content, headers=headers)
    assert (again.status_code, again.json()) == (200, answer.json())


async def test_a_call_whose_tool_no_worker_has_says_so_and_how_it_ended(api: World, host: Host) -> None:
    task_id = await begun(host)
    run = await run_of(api, task_id)
    await api.ask(run, call("c1"))

    async def claim() -> Lease:
        lease = await api.store.steps.claim(
            task_id, run["conversation_id"], "1/c1", queues=("tools",), worker="w-1", nonce="n", known=None
        )
        assert isinstance(lease, Lease), lease
        return lease

    left = Postpone(0.05, "crm", WaitReason.REMOTE_TASK, begun=True, kept="{}")
    await api.store.steps.settle(await claim(), left)
    await swept(api)
    await api.store.steps.settle(await claim(), Postpone(0.05, "tool:calculator", WaitReason.NO_WORKER))
    for state in (await get(host, task_id), (await host.call("run_get", run_id=task_id))["structuredContent"]):
        assert (state["status"], state.get("statusMessage") or state["reason"]) == ("working", "no_worker")
    await swept(api)
    none = classify(NoWorker("for an hour no worker has had the tool 'calculator'"), source="tool")
    await api.store.steps.settle(await claim(), GiveUp(none, StopReason.ERROR))
    ended = await get(host, task_id)
    error = ended["result"]["structuredContent"]["error"]
    assert (ended["status"], ended["result"]["isError"], error["code"]) == ("completed", True, "no_worker")
    assert "no worker has had the tool 'calculator'" in error["message"]


async def swept(api: World) -> None:
    """Wait until the step is due again, and let it be delivered."""

    async def due() -> bool:
        things, _ = await api.store.due.due()
        return bool(await api.store.due.sweep(things))

    await aeventually(due)
