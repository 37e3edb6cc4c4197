"""A host of the Model Context Protocol sees the question of a tool's server, and answers it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from palaver.schemas.actions import ServerQuestion
from tests.unit.api_world import World
from tests.unit.mcp_host import WITH_TASKS, Host, hosted
from tests.unit.test_api_questions import _AT, _FORM, _QUESTION, _asked, _claimed


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with hosted() as made:
        yield made


async def test_a_host_sees_the_question_and_answers_it_by_the_tool(api: World) -> None:
    host = Host(api.client)
    started = await host.state("run_start", agent="support", message="hello")
    run = await _asked(api, run_id=started["run_id"])
    state = await host.state("run_get", run_id=run["id"])
    [action] = state["actions"]
    assert (state["status"], action["kind"]) == ("input_required", "question")
    assert action["title"] == "crm asks, in a call of the tool calculator: Which one?"
    assert action["question"]["form"] == _FORM
    said = {"action_id": action["action_id"], "response": "accept", "content": {"name": "Ada"}}
    bad: list[dict[str, Any]] = [{**said, "content": {}}, {**said, "decision": "approve"}, {**said, "content": "x"}]
    for each in bad:
        assert (await host.refused("run_answer", run_id=run["id"], answers=[each]))["code"] == "invalid_input"
    for _ in range(2):
        assert (await host.state("run_answer", run_id=run["id"], answers=[said]))["status"] == "working"
    assert json.loads((await _claimed(api, run)).answer or "") == {"action": "accept", "content": {"name": "Ada"}}


@pytest.mark.parametrize(
    ("question", "response", "kept"),
    [
        (_QUESTION, {"action": "accept", "content": {"name": "Ada"}}, {"action": "accept", "content": {"name": "Ada"}}),
        (_QUESTION, {"action": "decline"}, {"action": "decline"}),
        (_QUESTION, {"action": "cancel"}, {"action": "cancel"}),
        (_AT, {"action": "accept"}, {"action": "accept"}),
    ],
)
async def test_a_host_that_knows_tasks_is_asked_as_we_are(
    api: World, question: ServerQuestion, response: dict[str, Any], kept: dict[str, Any]
) -> None:
    host = Host(api.client, WITH_TASKS)
    task_id = (await host.call("agent_support", message="hello"))["taskId"]
    run = await _asked(api, question, task_id)
    task = await host.result("tasks/get", {"taskId": task_id})
    [(key, request)] = task["inputRequests"].items()
    form = {"mode": "form", "requestedSchema": _FORM} if question.url is None else {"mode": "url", "url": question.url}
    assert request == {
        "method": "elicitation/create",
        "params": {"message": f"crm: {question.message}", **form},
    }
    await host.result("tasks/update", {"taskId": task_id, "inputResponses": {key: response}})
    assert json.loads((await _claimed(api, run)).answer or "") == kept
