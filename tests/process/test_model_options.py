"""Options of an agent, on their way to the model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process.cluster import Cluster

pytestmark = pytest.mark.process


@pytest.mark.parametrize("choice", ["required", {"name": "calculator"}])
def test_a_model_that_has_to_call_a_tool_may_answer_once_it_has(cluster: Cluster, choice: Any) -> None:
    body = cluster.body("echo", tools=["record_idempotent", "calculator"], agent={"tool_choice": choice})
    run = cluster.ended(cluster.post(body))
    assert (run.status, run.usage.tool_calls, run.step) == ("completed", 1, 2), run.error
    assert run.agent.tool_choice is not None
    again = cluster.ended(cluster.post({**body, "conversation_id": run.conversation_id}))
    assert again.usage.tool_calls == 1, "it holds for what the user says next"


def test_options_reach_the_model_and_are_kept(cluster: Cluster) -> None:
    options = {"stop": ["END"], "seed": 7, "top_p": 0.5, "reasoning_effort": "low", "extra_body": {"max_new": 1}}
    run = cluster.ended(cluster.submit("say-3", agent=options))
    assert run.status == "completed", run.error
    kept = run.agent.model_dump(mode="json", exclude_unset=True)
    assert {name: kept[name] for name in options} == options
