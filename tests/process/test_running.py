"""From a submit over HTTP to the end of the run."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster, stream
from tests.waiting import eventually

pytestmark = pytest.mark.process


def test_a_run_is_submitted_over_http_and_completes(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("echo", "hello world"))
    assert (run.status, run.stop_reason, run.output) == ("completed", "end_turn", "echo: hello world")
    assert run.usage.model_calls == 1
    assert len(cluster.model_calls(run.id)) == 1


def test_a_watcher_sees_the_answer_while_it_is_made(cluster: Cluster) -> None:
    run_id = cluster.submit("say-20+rate-20")
    seen = list(stream(cluster.http, f"/v1/runs/{run_id}/events"))
    deltas = [(at, event) for at, event in seen if event["event"] == "message.delta"]
    assert seen[-1][1]["event"] == "run.finished"
    assert [event["id"] for _, event in seen] == list(range(1, len(seen) + 1))
    assert len(deltas) > 5
    assert deltas[-1][0] - deltas[0][0] > 0.4


def test_a_submit_that_accepts_a_stream_gets_the_events_at_once(cluster: Cluster) -> None:
    submit = {"method": "POST", "url": "/v1/runs", "json": cluster.body("say-5")}
    seen = [event for _, event in stream(cluster.http, "", **submit)]
    assert seen[0]["event"] == "run.created"
    assert seen[-1]["event"] == "run.finished"
    cluster.submitted.append(seen[0]["data"]["run_id"])


def test_tool_calls_of_one_turn_run_side_by_side(cluster: Cluster) -> None:
    run_id = cluster.submit("parallel-4", '[[args {"seconds": 30}]]', tools=["record_idempotent"])
    # None of them has ended by then.
    eventually(lambda: len(cluster.tool_starts(run_id)) == 4)
    cluster.cancel(run_id)
    assert cluster.ended(run_id).status == "cancelled"


def test_the_results_of_one_turn_go_to_the_model_together(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("parallel-4", tools=["record_idempotent"]))
    assert (run.status, run.usage.tool_calls, run.usage.model_calls) == ("completed", 4, 2)


def test_inline_tools_are_answered_within_the_model_step(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-5", tools=["calculator"]))
    assert (run.status, run.step, run.usage.tool_calls) == ("completed", 6, 5)
    assert not [event for event in cluster.events(run.id) if event.type == "step.started" and "/" in event.data["step"]]


def test_bad_arguments_and_unknown_tools_are_told_to_the_model(cluster: Cluster) -> None:
    for model in ("tool-2+badargs-1", "tool-2+unknowntool-1"):
        run = cluster.ended(cluster.submit(model, tools=["calculator"]))
        assert run.status == "completed"
        answers = [e.data["message"] for e in cluster.events(run.id) if e.type == "tool.finished"]
        assert [answer.get("is_error", False) for answer in answers] == [True, False]


def test_names_of_tools_are_told_to_the_model_whatever_they_look_like(cluster: Cluster) -> None:
    names = [
        "hf_list_models", "sk_4eC39HqLyjWDarjtT1zdp7dc", "pk-lookup-of-a-row",
        "getCustomer2InformationFromTheInternalDatabase",
        "search_internal_customer_support_knowledge_base_2026",
    ]  # fmt: skip
    tools = [{"name": name, "parameters": {"type": "object"}} for name in names]
    run = cluster.ended(cluster.submit("tool-2+unknowntool-1", tools=["calculator"], agent={"client_tools": tools}))
    answers = [e.data["message"] for e in cluster.events(run.id) if e.type == "tool.finished"]
    assert answers[0]["is_error"]
    assert answers[0]["content"].endswith(f"there are: calculator, {', '.join(names)}")
