"""What a provider wants back unchanged comes back: to itself, and to nobody else.

The model server plays providers that refuse a request without it, or with what another one made; and after each test,
the checks fail on any request that was refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.cluster import Cluster, stream
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

LOOP = "steps-1-2-1-3-1"
"""Five turns of a tool loop, two of them with parallel calls."""
STRICT = ("gemini", "deepseek", "kimi", "openrouter")
TOOLS = ["calculator", "record_idempotent"]
FALL_BACK = {"rules": {"provider_error": {"attempts": 1, "then": "fallback_model"}}}
HIDDEN = ("thought_signature", "reasoning_content", "reasoning_details", "opaque")


def statuses(cluster: Cluster, run_id: str) -> list[tuple[str, int | None]]:
    cluster.outcomes(run_id)
    return [(call.model.rpartition("+")[2], call.status) for call in cluster.finished_calls(run_id)]


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider", STRICT)
def test_a_tool_loop_and_the_turn_after_it(cluster: Cluster, provider: str, streamed: bool) -> None:
    body = cluster.body(f"{LOOP}+use-each+args-split-3+{provider}", tools=TOOLS, agent={"stream": streamed})
    run = cluster.ended(cluster.post(body))
    assert run.status == "completed", run.error
    again = cluster.post({**body, "conversation_id": run.conversation_id})
    assert cluster.ended(again).status == "completed"
    for each in (run.id, again):
        assert statuses(cluster, each) == [(provider, 200)] * 6


@pytest.mark.parametrize("provider", STRICT)
def test_a_worker_that_is_killed_in_the_middle(cluster: Cluster, provider: str) -> None:
    cluster.start("worker")
    run_id = cluster.submit(f"{LOOP}+ttft-300+{provider}", tools=TOOLS)
    cluster.saw(run_id, "step.started", step="4")
    cluster.kill("worker", cluster.holder(run_id))
    run = cluster.ended(run_id)
    assert run.status == "completed", run.error
    assert len(set(cluster.tries(run_id))) == 2, "no other worker went on with it"
    assert {status for _, status in statuses(cluster, run_id)} <= {200, None}


@pytest.mark.parametrize("provider", STRICT)
def test_another_provider_gets_nothing_of_it_and_the_first_one_all_of_its_own(cluster: Cluster, provider: str) -> None:
    model, fallback = f"fake/{LOOP}+503@4+{provider}", f"limited/{LOOP}+groq"
    run = cluster.ended(cluster.submit(model, tools=TOOLS, agent={"fallbacks": [fallback], "retry": FALL_BACK}))
    assert (run.status, run.model) == ("completed", fallback), run.error
    assert statuses(cluster, run.id) == [(provider, 200)] * 3 + [(provider, 503)] + [("groq", 200)] * 3
    if provider in ("gemini", "openrouter"):
        # The others refuse whatever calls of another model the history has.
        again = cluster.submit(f"{LOOP}+{provider}", "more", tools=TOOLS, conversation_id=run.conversation_id)
        assert cluster.ended(again).status == "completed"
        assert statuses(cluster, again) == [(provider, 200)] * 6


def test_another_model_of_the_same_provider_is_another_origin(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit(f"{LOOP}+deepseek", tools=TOOLS))
    again = cluster.submit("echo+groq", "more", conversation_id=run.conversation_id)
    assert cluster.ended(again).status == "completed"


@pytest.mark.parametrize("provider", STRICT)
def test_after_an_answer_that_was_cancelled_the_conversation_goes_on(cluster: Cluster, provider: str) -> None:
    run_id = cluster.submit(f"say-60+rate-40+{provider}")
    cluster.saw(run_id, "message.delta")
    assert cluster.http.post(f"/v1/runs/{run_id}/cancel").status_code in (200, 202)
    run = cluster.ended(run_id)
    assert run.status == "cancelled"
    short = {"max_output_tokens": 3}
    for _ in range(2):
        body = cluster.body(f"say-60+rate-40+{provider}", agent=short, conversation_id=run.conversation_id)
        assert cluster.ended(cluster.post(body)).stop_reason == "max_tokens"


@pytest.mark.parametrize("provider", STRICT)
def test_a_fork_has_it_too(cluster: Cluster, provider: str) -> None:
    run = cluster.ended(cluster.submit(f"{LOOP}+{provider}", tools=TOOLS))
    answer = cluster.http.post(f"/v1/runs/{run.id}/retry", json={"from_step": 4})
    assert answer.status_code == 202, answer.text
    fork = answer.json()["id"]
    cluster.submitted.append(fork)
    assert cluster.ended(fork).status == "completed"
    assert statuses(cluster, fork) == [(provider, 200)] * 3


def test_nobody_who_watches_sees_it_and_who_asks_does(cluster: Cluster) -> None:
    run_id = cluster.submit(f"{LOOP}+gemini", tools=TOOLS)
    shown = list(_strings(event for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events")))
    run = cluster.ended(run_id)
    conversation = f"/v1/conversations/{run.conversation_id}/messages"
    pages = cluster.http.get(f"/v1/runs/{run_id}/events", headers={"Accept": "application/json"}).json()
    plain = cluster.http.get(conversation).json()
    shown += [*_strings(pages), *_strings(plain["data"])]
    assert [text for text in shown if any(name in text for name in HIDDEN)] in ([], ["opaque"] * len(plain["data"]))
    assert all(message["opaque"] is None for message in plain["data"])
    asked = cluster.http.get(conversation, params={"include": "opaque"}).json()["data"]
    made = [message["opaque"] for message in asked if message["role"] == "assistant"]
    assert {each["origin"] for each in made} == {f"chat_completions/{run.model}"}
    calls = [message["tool_calls"] for message in asked if message["tool_calls"]]
    assert [list(each["fields"]["tool_calls"]) for each in made[:5]] == [[first["id"]] for first, *_ in calls]
    assert "thought_signature" in made[5]["fields"]["extra_content"]["google"]
    logs = eventually(cluster.new_logs)
    signature = made[5]["fields"]["extra_content"]["google"]["thought_signature"]
    assert not [name for name, text in logs.items() if signature in text]


def test_what_the_model_thinks_is_told_to_who_asks(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1+reasoning", tools=TOOLS)
    asked = [event for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events?include=reasoning")]
    plain = [event for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events")]
    thoughts = "".join(event["data"]["text"] for event in asked if event["event"] == "reasoning.delta")
    once = "".join(f" thought{i}" for i in range(1, 9))
    assert thoughts == once * 2
    assert [event for event in asked if event["event"] != "reasoning.delta"] == plain
    run = cluster.ended(run_id)
    assert run.usage.reasoning_tokens == 16
    path = f"/v1/conversations/{run.conversation_id}/messages"
    said = cluster.http.get(path, params={"include": "reasoning"}).json()["data"]
    made = [message["content"] for message in said if message["role"] == "assistant"]
    assert [content[0] for content in made] == [{"type": "reasoning", "text": once}] * 2


def _strings(found: Any) -> Iterator[str]:
    """Every name and text in it."""
    if isinstance(found, dict):
        yield from found
        found = found.values()
    if isinstance(found, str):
        yield found
    elif not isinstance(found, int | float | None):
        for each in found:
            yield from _strings(each)
