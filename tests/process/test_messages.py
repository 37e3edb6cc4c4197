"""Claude, in its own protocol: what it thinks comes back as it was, through everything that may happen to a run.

The model server refuses a thought that is lost, changed or out of order, results that are not whole or not first, and
ids that come twice; after each test, the checks fail on any request that was refused. What is sent after a worker was
killed, tests/chaos/test_aimed_kills.py compares.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from features.fake_provider.thoughts import redacted, signature
from palaver.schemas.models import Run
from tests.process.cluster import Cluster, stream
from tests.process.faults.row import words
from tests.waiting import eventually

pytestmark = pytest.mark.process

LOOP = "steps-1-2-1+reasoning"
TOOLS = ["calculator", "record_idempotent"]
FALL_BACK = {"rules": {"provider_error": {"attempts": 1, "then": "fallback_model"}}}


def thoughts(cluster: Cluster, run: Run) -> Sequence[list[Any]]:
    """What of each answer is sent back unchanged."""
    path = f"/v1/conversations/{run.conversation_id}/messages"
    found = cluster.http.get(path, params={"include": "opaque"}).json()["data"]
    made = [message["opaque"] for message in found if message["role"] == "assistant" and message["run_id"] == run.id]
    assert {each["origin"] for each in made} == {f"anthropic/{run.model}"}
    return [[block for block in each["fields"]["blocks"] if isinstance(block, dict)] for each in made]


def expected(count: int = 8) -> list[dict[str, str]]:
    """As the model server made it."""
    said = "".join(f" thought{i}" for i in range(1, count + 1))
    return [
        {"type": "thinking", "thinking": said, "signature": signature(said)},
        {"type": "redacted_thinking", "data": redacted(said)},
    ]


def statuses(cluster: Cluster, run_id: str) -> list[int | None]:
    return [call.status for call in cluster.finished_calls(run_id)]


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_a_tool_loop_and_the_turn_after_it(cluster: Cluster, streamed: bool) -> None:
    model = f"claude/{LOOP}+use-each+args-split-3"
    run = cluster.ended(cluster.post(cluster.body(model, tools=TOOLS, agent={"stream": streamed})))
    assert run.status == "completed", run.error
    again = cluster.submit(model, "more", tools=TOOLS, conversation_id=run.conversation_id)
    assert cluster.ended(again).status == "completed"
    for each in (run.id, again):
        assert statuses(cluster, each) == [200] * 4
    assert thoughts(cluster, run) == [expected()] * 4
    used = run.usage
    assert (used.model_calls, used.reasoning_tokens) == (4, 32)
    # The server reads half of a prompt from its cache, and writes a quarter.
    assert used.input_tokens > used.cached_tokens > used.cache_write_tokens > 0
    places = [call.breakpoints for call in cluster.model_calls(run.id)]
    assert places == [[0], [0, 2], [0, 2, 4], [2, 4, 6]]


def test_who_asks_is_told_what_it_thinks(cluster: Cluster) -> None:
    run_id = cluster.submit("claude/tool-1+reasoning", tools=TOOLS)
    asked = [event for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events?include=reasoning")]
    plain = [event for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events")]
    told = "".join(event["data"]["text"] for event in asked if event["event"] == "reasoning.delta")
    assert told == expected()[0]["thinking"] * 2
    assert [event for event in asked if event["event"] != "reasoning.delta"] == plain
    assert "thought1" not in json.dumps(plain)
    run = cluster.ended(run_id)
    logs = eventually(cluster.new_logs)
    assert not [name for name, text in logs.items() if "thought1" in text or expected()[0]["signature"] in text]
    assert run.status == "completed"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("claude/steps-1-2-1-1+reasoning+503@3", "limited/steps-1-2-1-1+groq"),
        ("fake/steps-1-2-1-1+deepseek+503@3", "claude/steps-1-2-1-1+reasoning"),
        ("fake/steps-1-2-1-1+gemini+503@3", "claude/steps-1-2-1-1+reasoning"),
    ],
)
def test_another_provider_goes_on_in_the_middle_of_a_tool_loop(cluster: Cluster, first: str, then: str) -> None:
    """Each gets the calls with ids that it takes, and nothing that only the other one understands."""
    agent = {"fallbacks": [then], "retry": FALL_BACK}
    run = cluster.ended(cluster.submit(first, tools=TOOLS, agent=agent))
    assert (run.status, run.model) == ("completed", then), run.error
    assert statuses(cluster, run.id) == [200, 200, 503, 200, 200, 200]
    if "deepseek" not in first:
        # DeepSeek refuses whatever calls of another model the history has.
        plain = first.replace("+503@3", "")
        again = cluster.submit(plain, "more", tools=TOOLS, conversation_id=run.conversation_id)
        assert cluster.ended(again).status == "completed"
        assert {*statuses(cluster, again)} == {200}


def test_a_cancel_closes_the_stream_and_the_conversation_goes_on(cluster: Cluster) -> None:
    run_id = cluster.submit("claude/say-200+reasoning+rate-60")
    cluster.saw(run_id, "message.delta")
    assert cluster.http.post(f"/v1/runs/{run_id}/cancel").status_code in (200, 202)
    run = cluster.ended(run_id)
    assert run.status == "cancelled"
    call = eventually(lambda: [each for each in cluster.model_calls(run_id) if each.closed_by_client_at])
    assert call[0].outcome == "disconnected"
    # The thought had ended: it goes with the text that was cut off.
    assert thoughts(cluster, run) == [expected()]
    again = cluster.submit("claude/say-200+reasoning+rate-60+tokens-3", "more", conversation_id=run.conversation_id)
    assert cluster.ended(again).status == "completed"
    assert statuses(cluster, again) == [200]


def test_a_cancel_within_a_thought_keeps_nothing_of_it(cluster: Cluster) -> None:
    run_id = cluster.submit("claude/say-5+reasoning-400+rate-60")
    cluster.saw(run_id, "reasoning.delta")
    assert cluster.http.post(f"/v1/runs/{run_id}/cancel").status_code in (200, 202)
    run = cluster.ended(run_id)
    said = cluster.http.get(f"/v1/conversations/{run.conversation_id}/messages").json()["data"]
    assert [message["role"] for message in said] == ["user"]
    again = cluster.submit("claude/echo", "more", conversation_id=run.conversation_id)
    assert cluster.ended(again).output == "echo: more"


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_an_answer_that_outgrows_the_window_is_withdrawn_and_asked_for_again(cluster: Cluster, streamed: bool) -> None:
    before = cluster.ended(cluster.submit("claude/say-3", "x" * 8000))
    model, question = "claude/echo+reasoning+rate-1000+room-3000", "w " * 900
    agent = {"stream": streamed}
    run = cluster.ended(cluster.submit(model, question, conversation_id=before.conversation_id, agent=agent))
    assert (run.status, run.output) == ("completed", f"echo: {question}"), run.error
    events = cluster.events(run.id)
    (retrying,) = [event.data for event in events if event.type == "run.retrying"]
    assert (retrying["delay"], retrying["error"]["class"]) == (0, "context_window")
    kinds = [event.type for event in events]
    assert kinds.count("conversation.condensed") == 1
    # A whole answer is shown, too, if the deltas of this moment are written before it is known that it is cut off.
    seen = "message.delta" in kinds[: kinds.index("run.retrying")]
    assert seen >= streamed
    assert kinds.count("message.discarded") == seen
    shown = "".join(
        event.data["text"]
        for event in events[-1 - kinds[::-1].index("step.started") :]
        if event.type == "message.delta"
    )
    assert shown == run.output
    calls = cluster.model_calls(run.id)
    own = [call.request_id for call in calls if ":condense-" not in (call.request_id or "")]
    assert own == [f"{run.id}:1:1", f"{run.id}:1:2"]
    assert run.usage.model_calls == len(calls)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("said", [3, 0], ids=["with words", "without a word"])
def test_a_model_that_pauses_gets_back_what_came_and_goes_on(cluster: Cluster, streamed: bool, said: int) -> None:
    """The model server refuses a search that is changed, and pauses again if one does not come back."""
    model = f"claude/tool-3+say-9+reasoning+pause-2-{said}"
    run = cluster.ended(cluster.submit(model, tools=TOOLS, agent={"stream": streamed}))
    assert (run.status, run.output) == ("completed", words(9)), run.error
    assert [call.call_index for call in cluster.model_calls(run.id)] == [1, 2, 3, 4]
    assert run.usage.model_calls == 4
    paused, paused_again, *_ = thoughts(cluster, run)
    assert [block["type"] for block in paused] == ["thinking", "redacted_thinking", "server_tool_use"]
    assert paused[2]["id"] != paused_again[2]["id"]
    again = cluster.submit(model, "more", tools=TOOLS, conversation_id=run.conversation_id)
    assert cluster.ended(again).status == "completed"


def test_a_model_that_pauses_for_ever_ends_with_its_steps(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("claude/echo+pause-*-0", agent={"max_steps": 4}))
    assert (run.status, run.stop_reason) == ("incomplete", "max_steps")
    assert statuses(cluster, run.id) == [200] * 4
    assert run.usage.model_calls == 4


def test_a_fork_has_its_thoughts(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit(f"claude/{LOOP}", tools=TOOLS))
    answer = cluster.http.post(f"/v1/runs/{run.id}/retry", json={"from_step": 3})
    assert answer.status_code == 202, answer.text
    fork = answer.json()["id"]
    cluster.submitted.append(fork)
    assert cluster.ended(fork).status == "completed"
    assert statuses(cluster, fork) == [200] * 2
