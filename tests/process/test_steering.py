"""What the user says while a run is going on: into it, in its place, behind it, or not at all."""

from __future__ import annotations

import httpx
import pytest

from tests.process.cluster import Cluster
from tests.process.phases import in_a_model_call

pytestmark = pytest.mark.process


def say(cluster: Cluster, conversation_id: str, words: str, on_conflict: str, model: str = "echo") -> httpx.Response:
    """Submit these words to a conversation."""
    body = cluster.body(model, words, conversation_id=conversation_id, on_conflict=on_conflict)
    answer = cluster.http.post("/v1/runs", json=body)
    if answer.is_success and answer.json()["id"] not in cluster.submitted:
        cluster.submitted.append(answer.json()["id"])
    return answer


def outputs(cluster: Cluster, conversation_id: str) -> list[tuple[str, str]]:
    """The messages of a conversation that models are told of."""
    page = cluster.http.get(f"/v1/conversations/{conversation_id}/messages").json()["data"]
    return [(each["role"], each["content"]) for each in page if not each["withdrawn"]]


def test_words_into_a_run_are_seen_by_its_next_model_call(cluster: Cluster) -> None:
    with in_a_model_call(cluster, "tool-1", tools=["record"]) as run_id:
        cluster.steer(run_id, "In metres, please.")
    assert cluster.saw(run_id, "message.created", steer=True).data["message"]["content"] == "In metres, please."
    assert cluster.ended(run_id).status == "completed"
    # To the model server this is another turn, and so the tool is called again.
    assert [(call.turn, call.messages) for call in cluster.model_calls(run_id)] == [(1, 1), (2, 4), (2, 6)]


def test_words_come_in_at_any_moment_and_none_is_lost(cluster: Cluster) -> None:
    """Either the run takes them and the model sees them, or it has ended and says so."""
    taken = 0
    for i in range(20):
        run_id = cluster.submit("echo", f"number {i}")
        for j in range(5):
            answer = cluster.put(run_id, {"type": "message", "content": f"more {i} {j}"})
            if not answer.is_success:
                assert answer.json()["code"] == "run_ended"
                break
            taken += 1
        said = outputs(cluster, cluster.ended(run_id).conversation_id)
        assert said[-1] == ("assistant", f"echo: {[words for role, words in said if role == 'user'][-1]}")
    events = [event for run_id in cluster.submitted for event in cluster.events(run_id)]
    assert sum(bool(event.data.get("steer")) for event in events) == taken > 0


def test_words_survive_the_worker_that_had_the_model_call(cluster: Cluster) -> None:
    run_id = cluster.submit("say-20+rate-20")
    cluster.saw(run_id, "message.delta")
    cluster.kill("worker")
    cluster.steer(run_id, "In metres, please.")
    cluster.start("worker")
    assert cluster.ended(run_id).status == "completed"
    assert [call.messages for call in cluster.model_calls(run_id)] == [1, 2]


def test_an_interruption_cancels_what_is_active_and_queued_and_is_next(cluster: Cluster) -> None:
    run_id = cluster.submit("say-400+rate-20")
    cluster.saw(run_id, "message.delta")
    active = cluster.run(run_id)
    queued = [cluster.submit("echo", f"queued {i}", conversation_id=active.conversation_id) for i in range(2)]
    new = say(cluster, active.conversation_id, "now", "interrupt").json()["id"]
    run = cluster.ended(new)
    assert (run.status, run.output) == ("completed", "echo: now")
    active = cluster.run(run_id)
    assert active.status == "cancelled"
    assert active.cancel is not None
    assert (active.cancel.mode, active.cancel.reason) == ("now", f"interrupted by {new}")
    for each in queued:
        assert cluster.run(each).status == "cancelled"
        assert cluster.model_calls(each) == []
    said = outputs(cluster, active.conversation_id)
    assert [words for role, words in said if role == "user"] == ["hello", "now"]
    assert said[1][1].startswith("w1")


def test_after_a_rollback_the_model_is_asked_as_if_nothing_had_been_said(cluster: Cluster) -> None:
    """By the worker that knows the conversation with what was withdrawn."""
    first = cluster.ended(cluster.submit("echo", "one"))
    rolled = cluster.submit(
        "tool-5+say-400+rate-20", "wrong", tools=["calculator"], conversation_id=first.conversation_id
    )
    cluster.saw(rolled, "message.created", step="3")
    new = say(cluster, first.conversation_id, "two", "rollback").json()["id"]
    assert cluster.ended(new).output == "echo: two"
    assert cluster.ended(rolled).withdrawn
    (call,) = cluster.model_calls(new)
    assert (call.turn, call.messages) == (2, 3)
    said = [("user", "one"), ("assistant", "echo: one"), ("user", "two"), ("assistant", "echo: two")]
    assert outputs(cluster, first.conversation_id) == said
    # The same prompt as in a conversation where nothing was withdrawn.
    plain = cluster.ended(cluster.submit("echo", "one"))
    same = cluster.ended(cluster.submit("echo", "two", conversation_id=plain.conversation_id))
    assert cluster.model_calls(same.id)[0].digest == call.digest
