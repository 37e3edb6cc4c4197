"""Palaver, one idea after the other. Read from the top.

`palaver` is the SDK of a running stack: an API, a model worker, a tools worker and Redis. The model server behind it
does what a model's name says: `echo` repeats, `say-20` says twenty words, `tool-3` asks for three tools before it
answers, `429-1` refuses the first try. So these tests are what a user would write, and nothing in them is pretended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from palaver.client import Conflict, Palaver, RunFailed, Unprocessable
from palaver.events import MessageDelta
from palaver.schemas.models import Run
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process


@pytest.fixture
def palaver(cluster: Cluster) -> Iterator[Palaver]:
    """The SDK. Afterwards the cluster's checks look at every run that it made."""
    begun = datetime.now(UTC) - timedelta(seconds=0.001)
    with Palaver(cluster.stack.url) as sdk:
        yield sdk
        cluster.submitted += [run.id for run in sdk.list() if run.times.created_at >= begun]


# A run.


def test_a_run_takes_an_input_and_ends_with_an_output(palaver: Palaver) -> None:
    """Say who answers and what you want. `run` submits, waits, and returns the ended run."""
    run = palaver.run("hello", model="fake/echo")
    assert run.status == "completed"
    assert run.stop_reason == "end_turn"
    assert run.output == "echo: hello"


def test_submit_and_forget(palaver: Palaver) -> None:
    """`submit` returns at once. The run goes on without you; its id is all that you need to come back."""
    run = palaver.submit("hello", model="fake/say-40+rate-20")
    assert not run.status.terminal
    assert palaver.wait(run.id, timeout=10).status == "completed"


def test_submitting_again_with_the_same_key_is_submitting_once(palaver: Palaver) -> None:
    """An answer got lost on the way? Ask again with the same idempotency key: you get the run that there is."""
    first = palaver.submit("hello", model="fake/echo", idempotency_key="order-66")
    again = palaver.submit("hello", model="fake/echo", idempotency_key="order-66")
    assert again.id == first.id


def test_watching_a_run(palaver: Palaver) -> None:
    """Its events come as they happen: text while the model makes it, and `run.finished` as the last one."""
    run = palaver.submit("hello", model="fake/say-10+rate-50")
    events = list(palaver.events(run.id))
    numbers = [event.seq for event in events]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1, palaver.get(run.id).last_event_id)
    assert events[-1].type == "run.finished"
    said = "".join(event.text for event in events if isinstance(event, MessageDelta))
    assert said == palaver.get(run.id).output


def test_watching_goes_on_where_you_left(palaver: Palaver) -> None:
    """An event's `seq` is its place. Come back with it, even after the end, and you miss nothing and see nothing
    twice."""
    run = palaver.run("hello", model="fake/say-10")
    all_events = list(palaver.events(run.id))
    assert list(palaver.events(run.id, after=3)) == all_events[3:]


# Tools.


def test_a_model_may_use_tools(palaver: Palaver) -> None:
    """Name the tools an agent may use. Each call and its result is part of the conversation."""
    run = palaver.run("what is 1 + 1?", model="fake/tool-2", tools=["calculator"])
    assert run.usage.tool_calls == 2
    roles = [message.role for message in palaver.messages(run.conversation_id)]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_a_tool_is_a_python_function(palaver: Palaver) -> None:
    """`record` is one of ours: a function under `@tool` in a module that PALAVER_TOOLS names
    (tests/process/tools.py)."""
    run = palaver.run("go", model="fake/tool-1", tools=["record"])
    (result,) = [message for message in palaver.messages(run.conversation_id) if message.role == "tool"]
    assert (result.name, result.content) == ("record", "recorded")


def test_calls_of_one_turn_run_side_by_side(palaver: Palaver) -> None:
    """A model may ask for several tools at once. They run in parallel; the model sees the results in the order it
    asked."""
    run = palaver.run("go", model="fake/parallel-3", tools=["record"])
    messages = list(palaver.messages(run.conversation_id))
    asked = [call.id for message in messages for call in message.tool_calls]
    assert sorted(message.call_id or "" for message in messages if message.role == "tool") == asked
    assert run.usage.model_calls == 2


def test_a_tool_that_fails_is_told_to_the_model(palaver: Palaver) -> None:
    """It may know better arguments, or another way. The run goes on."""
    run = palaver.run("go", model="fake/tool-1", tools=["fail"])
    (result,) = [message for message in palaver.messages(run.conversation_id) if message.role == "tool"]
    assert result.is_error
    assert "no such city" in result.content
    assert run.status == "completed"


def test_a_tool_that_overruns_is_stopped(palaver: Palaver) -> None:
    """A tool has the time that it declares. Then it is interrupted, and the model is told."""
    run = palaver.run('[[args {"seconds": 30}]]', model="fake/tool-1", tools=["nap"])
    (result,) = [message for message in palaver.messages(run.conversation_id) if message.role == "tool"]
    assert "took longer than 0.3 s" in result.content


def test_a_tool_whose_worker_dies_is_never_started_twice(palaver: Palaver, cluster: Cluster) -> None:
    """It may or may not have taken effect: that is what the model is told. A tool declared `idempotent` would run
    again."""
    run = palaver.submit('[[args {"seconds": 30}]]', model="fake/tool-1", tools=["record"])
    eventually(lambda: cluster.tool_starts(run.id))
    cluster.kill("tools")
    assert palaver.wait(run.id, timeout=10).status == "completed"
    (result,) = [message for message in palaver.messages(run.conversation_id) if message.role == "tool"]
    assert "may or may not have taken effect" in result.content
    assert len(cluster.tool_starts(run.id)) == 1


# Conversations.


def test_a_run_goes_on_with_a_conversation(palaver: Palaver) -> None:
    """Every run belongs to a conversation, and a new one may go on with an old one: same agent, same history."""
    first = palaver.run("one", model="fake/echo")
    second = palaver.run("two", conversation_id=first.conversation_id)
    said = [message.content for message in palaver.messages(second.conversation_id)]
    assert said == ["one", "echo: one", "two", "echo: two"]


def test_runs_of_a_conversation_wait_for_each_other(palaver: Palaver) -> None:
    """Submit as many as you like; they run in order. A run that waits says for what."""
    first = palaver.submit("one", model="fake/say-40+rate-20")
    second = palaver.submit("two", model="fake/echo", conversation_id=first.conversation_id)
    assert second.waiting is not None
    assert second.waiting.reason == "conversation_busy"
    assert palaver.wait(second.id).status == "completed"
    assert palaver.get(first.id).status == "completed"


def test_a_busy_conversation_may_refuse(palaver: Palaver) -> None:
    """`on_conflict="reject"` for those who would rather not wait."""
    first = palaver.submit("one", model="fake/say-40+rate-20")
    with pytest.raises(Conflict) as refusal:
        palaver.submit("two", model="fake/echo", conversation_id=first.conversation_id, on_conflict="reject")
    assert refusal.value.code == "conversation_busy"


# When things go wrong.


def test_a_rate_limit_is_waited_for(palaver: Palaver) -> None:
    """The provider said when to come back. Meanwhile the run waits and says why, and no worker waits with it."""
    run = palaver.submit("hello", model="fake/429-1-1+echo")
    waiting: Run = eventually(lambda: (r := palaver.get(run.id)).waiting and r)  # type: ignore[assignment]
    assert waiting.waiting is not None
    assert (waiting.waiting.reason, waiting.waiting.error_class) == ("backoff", "rate_limited")
    assert palaver.wait(run.id).status == "completed"


def test_what_no_retry_can_mend_fails_at_once(palaver: Palaver) -> None:
    """A wrong key stays wrong. The error says what happened, where, and what you can do."""
    with pytest.raises(RunFailed) as failure:
        palaver.run("hello", model="fake/401")
    (run,) = palaver.list(limit=1)
    assert run.id == failure.value.run_id
    assert run.error is not None
    assert (run.error["class"], run.error["source"], run.error["retryable"]) == ("authentication", "model", False)
    assert run.usage.model_calls == 1


def test_what_was_shown_and_is_not_kept_is_withdrawn(palaver: Palaver) -> None:
    """A stream broke off, so the model is asked anew. `message.discarded` tells watchers to drop what they saw of
    it."""
    run = palaver.run("hello", model="fake/say-20+rate-60+cut-1-12")
    kinds = [event.type for event in palaver.events(run.id)]
    assert kinds.index("message.delta") < kinds.index("message.discarded") < kinds.index("run.retrying")
    assert run.output == " ".join(f"w{i}" for i in range(1, 21))


def test_a_worker_that_dies_loses_nothing(palaver: Palaver, cluster: Cluster) -> None:
    """Its lease runs out, another worker goes on, and the answer is there once."""
    run = palaver.submit("hello", model="fake/say-30+rate-20")
    eventually(lambda: any(event.type == "message.delta" for event in cluster.events(run.id)))
    cluster.kill("worker")
    cluster.start("worker")
    ended = palaver.wait(run.id, timeout=20)
    assert ended.output == " ".join(f"w{i}" for i in range(1, 31))
    assert "step.lost" in [event.type for event in palaver.events(run.id)]


def test_a_request_that_is_not_valid_says_where(palaver: Palaver) -> None:
    """Before anything runs: the field and the nearest name that would do."""
    with pytest.raises(Unprocessable) as refusal:
        palaver.submit("hello", model="fake/echo", tools=["calculater"])
    (error,) = refusal.value.errors
    assert error["pointer"] == "/agent/tools/0"
    assert "calculator" in error["message"]


# Limits.


def test_a_run_may_have_a_limit_of_steps(palaver: Palaver) -> None:
    """Then it ends `incomplete`; what was done so far stays."""
    run = palaver.run("go", model="fake/tool-9", tools=["calculator"], max_steps=2)
    assert (run.status, run.stop_reason, run.usage.model_calls) == ("incomplete", "max_steps", 2)


def test_every_run_has_a_deadline(palaver: Palaver) -> None:
    """A day unless you say otherwise. At that moment the run ends, whatever it does."""
    deadline = datetime.now(UTC) + timedelta(seconds=2)
    run = palaver.run("hello", model="fake/say-400+rate-20", deadline=deadline)
    assert (run.status, run.stop_reason) == ("expired", "deadline")
    assert run.times.ended_at is not None
    assert run.times.ended_at - deadline < timedelta(seconds=1)


# Stopping.


def test_cancel_stops_a_run_at_once(palaver: Palaver) -> None:
    """The call of the model is cut off within milliseconds. What it had said is kept."""
    run = palaver.submit("hello", model="fake/say-400+rate-20")
    seen = threading.Event()
    for event in palaver.events(run.id):
        if event.type == "message.delta" and not seen.is_set():
            seen.set()
            palaver.cancel(run.id, reason="changed my mind")
    ended = palaver.get(run.id)
    assert ended.status == "cancelled"
    assert ended.cancel is not None
    assert ended.cancel.reason == "changed my mind"
    assert ended.cancel.stopped_ms is not None
    assert ended.cancel.stopped_ms < 1000
    partial = list(palaver.messages(run.conversation_id))[-1]
    assert partial.partial
    assert partial.text.startswith("w1")


def test_cancelling_twice_is_cancelling_once(palaver: Palaver) -> None:
    """So nobody needs to remember whether the first one arrived. A run that ended otherwise says so."""
    run = palaver.submit("hello", model="fake/say-400+rate-20")
    palaver.cancel(run.id)
    palaver.cancel(run.id)
    assert palaver.wait(run.id).status == "cancelled"
    finished = palaver.run("hello", model="fake/echo")
    with pytest.raises(Conflict) as refusal:
        palaver.cancel(finished.id)
    assert refusal.value.code == "run_ended"


def test_a_conversation_goes_on_after_a_cancel(palaver: Palaver, cluster: Cluster) -> None:
    """Calls that were open are answered, truthfully: denied, or interrupted and perhaps with an effect."""
    run = palaver.submit('[[args {"seconds": 30}]]', model="fake/parallel-2", tools=["record"])
    eventually(lambda: len(cluster.tool_starts(run.id)) == 2)
    palaver.cancel(run.id)
    palaver.wait(run.id)
    results = [message for message in palaver.messages(run.conversation_id) if message.role == "tool"]
    assert [result.is_error for result in results] == [True, True]
    assert palaver.run("go on", model="fake/echo", conversation_id=run.conversation_id).output == "echo: go on"


# Operations.


def test_queues_say_how_much_waits_and_who_works(palaver: Palaver) -> None:
    """For people and for autoscalers."""
    queues = {queue["name"]: queue for queue in palaver.queues()["data"]}
    assert {"model", "tools"} <= queues.keys()
    assert len(queues["model"]["workers"]) == 1
    assert queues["model"]["workers"][0]["capacity"] == 500
