"""OpenAI's Responses, end to end: the model server refuses any request in which something is lost or changed.

What is sent after a worker was killed, tests/chaos/test_aimed_kills.py compares.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.process.cluster import Cluster, stream

pytestmark = pytest.mark.process

LOOP = "steps-1-2-1+reasoning"
"""Three turns of a tool loop, one of them with parallel calls, each with reasoning before it."""
TOOLS = ["calculator", "record_idempotent"]


def kept(cluster: Cluster, conversation: str | None) -> list[dict[str, Any]]:
    """What the provider wants back with each message of the model."""
    answer = cluster.http.get(f"/v1/conversations/{conversation}/messages", params={"include": "opaque"})
    return [message["opaque"] for message in answer.json()["data"] if message["role"] == "assistant"]


def statuses(cluster: Cluster, run_id: str) -> list[int | None]:
    cluster.outcomes(run_id)
    return [call.status for call in cluster.finished_calls(run_id)]


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_a_tool_loop_and_the_turn_after_it(cluster: Cluster, streamed: bool) -> None:
    body = cluster.body(f"responding/{LOOP}+args-split-3", tools=TOOLS, agent={"stream": streamed})
    run = cluster.ended(cluster.post(body))
    assert run.status == "completed", run.error
    assert run.usage.reasoning_tokens == 8 * 4
    again = cluster.post({**body, "conversation_id": run.conversation_id})
    assert cluster.ended(again).status == "completed"
    assert statuses(cluster, run.id) == statuses(cluster, again) == [200] * 4
    made = kept(cluster, run.conversation_id)
    assert {each["origin"] for each in made} == {f"responses/{run.model}"}
    assert [each["fields"]["items"][0]["type"] for each in made] == ["reasoning"] * 8


def test_in_the_middle_of_a_tool_loop_others_go_on_and_it_goes_on_behind_them(cluster: Cluster) -> None:
    retry = {"rules": {"provider_error": {"attempts": 1, "then": "fallback_model"}}}
    places = ["responding", "fake", "claude", "responding"]
    models = [f"{place}/{LOOP}+503@{n}" for n, place in enumerate(places[:3], 2)] + [f"{places[3]}/{LOOP}"]
    run = cluster.ended(cluster.submit(models[0], tools=TOOLS, agent={"fallbacks": models[1:], "retry": retry}))
    assert (run.status, run.model) == ("completed", models[3]), run.error
    assert statuses(cluster, run.id) == [200, 503, 200, 503, 200, 503, 200]


def test_what_the_model_thinks_is_told_to_who_asks(cluster: Cluster) -> None:
    run_id = cluster.submit("responding/tool-1+reasoning", tools=TOOLS)
    asked = [event for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events?include=reasoning")]
    thoughts = "".join(event["data"]["text"] for event in asked if event["event"] == "reasoning.delta")
    once = "".join(f" thought{i}" for i in range(1, 9))
    assert thoughts == once * 2
    run = cluster.ended(run_id)
    path = f"/v1/conversations/{run.conversation_id}/messages"
    said = cluster.http.get(path, params={"include": "reasoning"}).json()["data"]
    made = [message["content"] for message in said if message["role"] == "assistant"]
    assert [content[0] for content in made] == [{"type": "reasoning", "text": once}] * 2


def test_reasoning_that_is_no_longer_taken_is_left_out_once(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit(f"responding/{LOOP}+stale-3", tools=TOOLS))
    assert run.status == "completed", run.error
    assert cluster.outcomes(run.id) == ["answered", "answered", "refused:stale", "answered", "answered"]
    assert run.usage.model_calls == 5
    event = cluster.saw(run.id, "reasoning.dropped")
    assert event.data == {"step": "3", "origin": f"responses/{run.model}"}
    assert not [each for each in cluster.events(run.id) if each.type == "run.retrying"]


def test_another_worker_knows_that_it_was_left_out(cluster: Cluster) -> None:
    cluster.start("worker")
    run_id = cluster.submit("responding/steps-1-1-1-1+reasoning+stale-3+ttft-300", tools=TOOLS)
    cluster.saw(run_id, "reasoning.dropped")
    cluster.saw(run_id, "step.started", step="4")
    cluster.kill("worker", cluster.holder(run_id))
    assert cluster.ended(run_id).status == "completed"
    assert cluster.outcomes(run_id).count("refused:stale") == 1
