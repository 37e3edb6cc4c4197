"""Conversations that are longer than the model's window: condensed, or ended with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.schemas.models import Run
from tests.model_server import LedgerEntry
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process

MODEL = "say-5+window-2000"
"""8000 bytes of messages: the fourth question of `QUESTION` is too much."""
QUESTION = "What about number {}? " + "x" * 2000


def ask(cluster: Cluster, number: int, conversation: str | None = None, model: str = MODEL, **agent: Any) -> str:
    body = cluster.body(model, QUESTION.format(number), agent=agent)
    return cluster.post({**body, **({"conversation_id": conversation} if conversation else {})})


def talk(cluster: Cluster, questions: int, **agent: Any) -> Run:
    """Run after run of one conversation; the last one."""
    run = cluster.ended(ask(cluster, 1, **agent))
    for number in range(2, questions + 1):
        run = cluster.ended(ask(cluster, number, run.conversation_id, **agent))
    return run


def condensed(cluster: Cluster, run_id: str) -> list[dict[str, Any]]:
    return [event.data for event in cluster.events(run_id) if event.type == "conversation.condensed"]


def purposes(calls: list[LedgerEntry]) -> list[tuple[bool, int | None]]:
    """Of each call: whether it was for a summary, and its status."""
    return [(":condense-" in (call.request_id or ""), call.status) for call in calls]


def said(cluster: Cluster, conversation: str) -> list[str]:
    page = cluster.http.get(f"/v1/conversations/{conversation}/messages", params={"limit": 500}).json()
    return [message["content"][:22] for message in page["data"] if message["role"] == "user"]


def test_a_conversation_that_is_too_long_is_condensed_and_goes_on(cluster: Cluster) -> None:
    run = talk(cluster, 4)
    assert (run.status, run.output) == ("completed", "w1 w2 w3 w4 w5")
    calls = cluster.finished_calls(run.id)
    assert purposes(calls) == [(False, 400), (True, 200), (False, 200)]
    (entry,) = condensed(cluster, run.id)
    assert entry["summary"] == "w1 w2 w3 w4 w5"
    assert (run.usage.model_calls, run.usage.output_tokens) == (3, 10)
    assert run.usage.input_tokens > 2000


def test_a_long_conversation_is_condensed_again_and_again(cluster: Cluster) -> None:
    run = talk(cluster, 14)
    assert run.status == "completed"
    entries = cluster.ask(lambda store: store.runs.entries(run.conversation_id, limit=1000))
    found = [entry.data["through"] for entry in entries if entry.type == "conversation.condensed"]
    assert len(found) >= 3
    assert found == sorted(set(found))
    assert said(cluster, run.conversation_id) == [QUESTION.format(i)[:22] for i in range(1, 15)]
    newest = cluster.model_calls(run.id)[-1]
    assert newest.messages <= 8


def test_another_worker_sees_the_same_summary(cluster: Cluster) -> None:
    run = talk(cluster, 5)
    cluster.kill("worker")
    cluster.start("worker")
    after = cluster.ended(ask(cluster, 6, run.conversation_id))
    assert after.status == "completed"


def test_a_worker_that_dies_while_it_condenses_loses_nothing(cluster: Cluster) -> None:
    model = "say-5+ttft-700+window-2000"
    first = cluster.ended(ask(cluster, 1, model=model))
    for number in (2, 3):
        cluster.ended(ask(cluster, number, first.conversation_id, model=model))
    run_id = ask(cluster, 4, first.conversation_id, model=model)
    eventually(lambda: any(summary for summary, _ in purposes(cluster.model_calls(run_id))))
    cluster.start("worker")
    cluster.kill("worker", cluster.holder(run_id))
    run = cluster.ended(run_id)
    assert run.status == "completed"
    assert len(condensed(cluster, run_id)) == 1


def test_calls_of_one_attempt_wait_for_their_turn_at_a_provider_with_limits(cluster: Cluster) -> None:
    model = "narrow/say-5+ttft-50+window-2000"
    conversations = [cluster.ended(ask(cluster, 1, model=model)).conversation_id for _ in range(6)]
    for number in range(2, 5):
        runs = [ask(cluster, number, each, model=model) for each in conversations]
        assert [cluster.ended(run_id).status for run_id in runs] == ["completed"] * 6
    assert all(len(condensed(cluster, run_id)) == 1 for run_id in runs)


def test_a_cancel_reaches_the_summary(cluster: Cluster) -> None:
    first = cluster.ended(ask(cluster, 1))
    for number in (2, 3):
        cluster.ended(ask(cluster, number, first.conversation_id))
    run_id = ask(cluster, 4, first.conversation_id, model="say-5+ttft-3000+window-2000")
    eventually(lambda: any(summary for summary, _ in purposes(cluster.model_calls(run_id))))
    cluster.cancel(run_id)
    run = cluster.ended(run_id)
    assert (run.status, run.usage.model_calls) == ("cancelled", 2)
    assert cluster.ended(ask(cluster, 5, first.conversation_id)).status == "completed"
