"""What people get wrong on the first day is answered with what to do, and with what they have sent."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.config.providers import Provider
from tests.unit.api_world import (
    AGENT,
    BODY,
    CONVERSATION_ID,
    PROVIDERS,
    RUN_ID,
    World,
    assert_problem,
    in_one_world,
    world,
)

OWN = {"ours": Provider(base_url="http://127.0.0.1:1/v1", models=("small",))}
STEERING = {"type": "message", "content": "a"}


async def faults(api: World, **changes: Any) -> list[str]:
    """What is said of a run that is not taken."""
    answer = await api.client.post("/v1/runs", json={**BODY, **changes})
    assert answer.status_code == 422, answer.text
    return [each["message"] for each in answer.json()["errors"]]


@in_one_world(
    [
        (f"/v1/runs/{RUN_ID}", "run_not_found", f"There is no run {RUN_ID}: it was never there, or its retention has"),
        ("/v1/runs/run_123", "run_not_found", "There is no run run_123: it was never there"),
        (
            f"/v1/runs/{CONVERSATION_ID}",
            "run_not_found",
            f"The id {CONVERSATION_ID} is that of a conversation",
        ),
        (
            f"/v1/conversations/{RUN_ID}",
            "conversation_not_found",
            f"The id {RUN_ID} is that of a run, not",
        ),
        ("/v1/conversations/conv_1", "conversation_not_found", "There is no conversation conv_1: it was never there"),
    ]
)
async def test_an_id_that_nothing_has_is_quoted(api: World, path: str, code: str, said: str) -> None:
    answer = await api.client.get(path)
    assert_problem(answer, 404, code)
    assert answer.json()["detail"].startswith(said)


async def test_a_cancel_of_a_conversation_says_that_it_is_one() -> None:
    async with world() as api:
        answer = await api.client.post(f"/v1/runs/{CONVERSATION_ID}/cancel")
        assert "is that of a conversation, not of a run" in answer.json()["detail"]


async def test_a_model_without_a_provider_is_answered_with_one_that_there_is() -> None:
    async with world(providers=OWN) as api:
        assert await faults(api, agent={"model": "gpt-4o"}) == ["must be provider/name, such as ours/small"]
    async with world(providers=PROVIDERS) as api:
        assert await faults(api, agent={"model": "gpt-4o"}) == ["must be provider/name, such as fake/tool-20"]


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_a_message_that_is_an_instruction_is_led_to_where_it_goes(role: str) -> None:
    async with world() as api:
        messages = [{"role": role, "content": "Be brief."}, {"role": "user", "content": "Hello."}]
        [said] = await faults(api, input=messages)
        assert said.startswith("must be 'user', 'assistant' or 'tool'")
        assert said.endswith(f"; what a {role} message says goes into the agent's instructions")
        [other] = await faults(api, input=[{"role": "sytem", "content": "Be brief."}])
        assert "instructions" not in other


async def test_a_body_that_is_too_large_is_told_its_size_and_the_setting() -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", json={**BODY, "input": "x" * 70_000})
        assert_problem(answer, 413, "payload_too_large")
        size = int(answer.request.headers["content-length"])
        assert (
            answer.json()["detail"] == f"A body has at most 65536 bytes here (PALAVER_MAX_BODY); this one has {size}."
        )


async def test_a_rule_for_tools_is_refused_where_it_would_be_ignored() -> None:
    async with world() as api:
        retry = {"rules": {"tool_error": {"attempts": 1}}}
        [said] = await faults(api, agent={**AGENT, "retry": retry})
        assert "these rules are for calls of models: a tool declares its own, @tool(retry=…)" in said


async def test_a_run_that_has_ended_says_so_in_plain_words() -> None:
    async with world() as api:
        run = await api.submit()
        await api.finish(run)
        answer = await api.client.post(
            f"/v1/runs/{run['id']}/input", json={"items": [{"type": "message", "content": "a"}]}
        )
        assert_problem(answer, 409, "run_ended")
        assert answer.json()["detail"].startswith("The run has ended and can take no more input: it is completed.")
