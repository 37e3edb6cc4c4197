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
