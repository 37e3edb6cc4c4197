"""What any backend must do when a run is cancelled: requirements R1 to R15, each by its number (R16 to R20
are in test_cancel_errors.py).

The checks after every test add: the log is whole, every call has one result, models were asked with what the log says
and nothing else, and nothing began behind an acknowledged cancel.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.process.aftermath import DENIED, cancelled, deliver, errors, outcome, prompt, said, strays
from tests.process.cluster import Cluster, stream
from tests.process.inputs import decision
from tests.process.phases import awaiting_a_decision, between_steps, frozen, streaming, wait
from tests.waiting import eventually

pytestmark = pytest.mark.process


def test_the_steps_that_were_done_stay_with_their_events_and_no_others(cluster: Cluster) -> None:
    with between_steps(cluster, agent={"stream": False}) as run_id:
        assert cluster.cancel(run_id) == 200
        seen = [event for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events")]
    steps = [(event["event"], event["data"]["step"]) for event in seen if event["data"].get("step")]
    call = "1/call_1_1_1"
    assert steps == [
        ("step.started", "1"), ("message.created", "1"), ("step.started", call), ("tool.finished", call),
    ]  # fmt: skip
    assert [event["event"] for event in seen[-2:]] == ["run.cancelling", "run.finished"]
    assert len(cluster.events(run_id)) == len(seen)
    run = cancelled(cluster, run_id)
    assert [role for role, _ in said(cluster, run)] == ["user", "assistant", "tool"]
    assert said(cluster, run)[-1] == ("tool", "recorded")
    assert (run.usage.model_calls, run.usage.tool_calls) == (1, 1)
    assert run.usage.input_tokens > 0
    assert outcome(cluster, run) == "cancelled"
    assert prompt(cluster, cluster.goes_on(run_id)) == 4


def test_a_run_that_is_cancelled_before_its_start_asks_no_model(cluster: Cluster) -> None:
    with frozen(cluster, "worker"):
        run_id = cluster.submit("tool-1", tools=["record"])
        assert cluster.cancel(run_id) == 200
        run = cancelled(cluster, run_id)
        assert outcome(cluster, run) == "cancelled"
    # Its delivery came, late, and comes again.
    eventually(lambda: strays(cluster, run_id) == 1)
    deliver(cluster, run)
    assert cluster.run(run_id) == run
    assert prompt(cluster, cluster.goes_on(run_id)) == 2
    assert cluster.model_calls(run_id) == []
    assert cluster.tool_starts(run_id) == []
    assert outcome(cluster, run) == "completed"


def test_a_cancel_at_any_instant_of_a_turn_that_needs_an_approval(cluster: Cluster) -> None:
    """Every 5 ms: before the call, in the stream, while the calls are kept, while somebody is asked."""

    def cancelled_after(ms: int) -> str:
        run_id = cluster.submit("parallel-2+use-each+ttft-40", tools=["send", "record"])
        wait(ms / 1000)
        assert cluster.cancel(run_id) in (200, 202)
        return run_id

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(cancelled_after, range(0, 160, 5)))
    for run_id in runs:
        run = cancelled(cluster, run_id)
        assert run.cancel is not None
        assert run.cancel.stopped_ms is not None
    for run_id in runs[::4]:
        run = cluster.goes_on(run_id)
        # The whole log, and nothing else but the answer.
        assert prompt(cluster, run) == len(said(cluster, run)) - 1


def test_a_cancel_in_a_token_stream(cluster: Cluster) -> None:
    run_id = cluster.submit("say-400+rate-50")
    seen: list[dict[str, Any]] = []
    asked_at = 0.0
    for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events"):
        seen.append(event)
        if [each["event"] for each in seen].count("message.delta") == 2 and not asked_at:
            asked_at = time.monotonic()
            cluster.cancel(run_id)
    kinds = [event["event"] for event in seen]
    assert kinds.count("run.finished") == 1
    assert (kinds[-1], seen[-1]["data"]["stop_reason"]) == ("run.finished", "cancelled")
    call = eventually(lambda: next(c for c in cluster.model_calls(run_id) if c.closed_by_client_at))
    run = cancelled(cluster, run_id)
    assert run.cancel is not None
    assert call.closed_by_client_at is not None
    assert call.closed_by_client_at - run.cancel.requested_at.timestamp() < 1.0
    assert call.chunks_sent < 100
    (message,) = (event["data"]["message"] for event in seen if event["data"].get("message", {}).get("partial"))
    assert message["content"] == "".join(event["data"]["text"] for event in seen if event["event"] == "message.delta")
    assert said(cluster, run) == [("user", "hello"), ("assistant", message["content"])]
    assert run.output == message["content"]
    assert (run.usage.model_calls, prompt(cluster, cluster.goes_on(run_id))) == (1, 3)


def test_a_tool_that_finished_keeps_its_result(cluster: Cluster) -> None:
    """One has finished, one takes longer, one finishes although it is told to stop, one was never begun."""
    text = '[[args {"seconds": 0.7}]]'
    with frozen(cluster, "tools"):
        never = cluster.submit("tool-1", tools=["record"])
        cluster.saw(never, "message.created", step="1")
        cluster.cancel(never)
    done = cluster.submit("parallel-2+use-each", "[[args {}]]", tools=["record", "linger"])
    cluster.saw(done, "tool.finished", step="1/call_1_1_1")
    eventually(partial(cluster.tool_starts, done, "linger"))
    assert cluster.cancel(done) in (200, 202)
    # Nothing else happens before its cancel: it does not take long.
    stubborn = cluster.submit("tool-1", text, tools=["stubborn"])
    eventually(partial(cluster.tool_starts, stubborn, "busy"))
    assert cluster.cancel(stubborn) in (200, 202)
    for run_id in (never, done, stubborn):
        assert len(cluster.model_calls(cancelled(cluster, run_id).id)) == 1
    assert errors(cluster, never) == {"call_1_1_1": "tool_denied"}
    assert errors(cluster, done) == {"call_1_1_1": "", "call_1_1_2": "tool_interrupted"}
    assert said(cluster, cluster.run(stubborn))[-1] == ("tool", "done")
    cluster.goes_on(done)
    cluster.goes_on(stubborn)


def census(cluster: Cluster, conversation: str) -> Counter[str]:
    """How many objects the model worker keeps, by class; asked in a conversation, which it keeps as well."""
    run = cluster.ended(cluster.submit("tool-1", tools=["census"], conversation_id=conversation))
    return Counter(orjson.loads(cluster.saw(run.id, "tool.finished").data["message"]["content"]))


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.chaos)], ids=["a hundred", "a thousand"])
def test_cancels_leave_nothing_in_the_worker(cluster: Cluster, rounds: int) -> None:
    """A hundred a round, all of them of runs whose model call is under way."""
    before = asked(cluster)
    conversations = [cluster.run(cluster.submit("say-400+rate-20")).conversation_id for _ in range(100)]
    eventually(lambda: asked(cluster) == before + 100)
    interrupt(cluster, conversations, times=1)
    here = cluster.run(cluster.submit("echo")).conversation_id
    kept, memory = census(cluster, here), resident(cluster)
    interrupt(cluster, conversations, times=rounds)

    def has_shrunk() -> bool:
        more = census(cluster, here) - kept
        more.pop("garbage", None)
        # The pool of connections may have grown towards its limit, and each has two futures.
        allowed = 20 + 2 * more["redis.asyncio.connection.Connection"]
        grown = {name: count for name, count in more.items() if count > allowed}
        assert not grown, grown
        return True

    eventually(has_shrunk, every=0.2, why="what the worker keeps of runs that were cancelled")
    assert resident(cluster) - memory < 10 << 20


def interrupt(cluster: Cluster, conversations: Sequence[str], times: int) -> None:
    """In each conversation, one run after the other that cancels the one before it; in the end all are cancelled."""
    body = cluster.body("say-400+rate-20", on_conflict="interrupt")
    bodies = [body | {"conversation_id": conversation} for conversation in conversations]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(times):
            before = asked(cluster)
            answers = pool.map(lambda each: cluster.http.post("/v1/runs", json=each), bodies)
            assert {answer.status_code for answer in answers} == {202}
            eventually(partial(was_asked, cluster, before + len(bodies)))
    assert cluster.http.post("/v1/runs/actions", json={"action": "cancel", "all": True, "limit": 200}).is_success
    left: dict[str, str | int] = {"status": "queued,running,cancelling", "limit": 1}
    eventually(lambda: not cluster.http.get("/v1/runs", params=left).json()["data"], every=0.1)


def asked(cluster: Cluster) -> int:
    """How many model calls there were."""
    return cluster.ledger_path.read_bytes().count(b'"event":"start"')


def was_asked(cluster: Cluster, times: int) -> bool:
    """Whether there were so many model calls."""
    return asked(cluster) == times


def resident(cluster: Cluster) -> int:
    """Bytes of memory that the model worker has."""
    (pid,) = cluster.stack.pids("worker")
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_run_that_was_cancelled_while_somebody_was_asked_takes_no_answer(cluster: Cluster) -> None:
    run_id = awaiting_a_decision(cluster)
    (action,) = cluster.pending(run_id)
    assert cluster.cancel(run_id) == 200
    before = cancelled(cluster, run_id)
    late = [
        decision(action.id), decision("all", "deny"), {"type": "message", "content": "go on"}, {"type": "resume"},
    ]  # fmt: skip
    for item in late:
        assert cluster.refused(run_id, item) == (409, "run_ended")
    deliver(cluster, before)
    assert cluster.run(run_id) == before
    assert cluster.tool_starts(run_id) == []
    assert len(cluster.model_calls(run_id)) == 1


def test_the_next_run_is_asked_for_nothing(cluster: Cluster) -> None:
    run_id = awaiting_a_decision(cluster)
    cluster.cancel(run_id)
    conversation = cluster.run(run_id).conversation_id
    run = cluster.ended(cluster.submit("echo", "just words", tools=["send"], conversation_id=conversation))
    assert (run.status, run.output, run.pending_actions) == ("completed", "echo: just words", ())
    assert "action.required" not in {event.type for event in cluster.events(run.id)}


def test_nobody_says_that_a_cancelled_run_waits(cluster: Cluster) -> None:
    run_id = awaiting_a_decision(cluster)
    cluster.cancel(run_id)
    run = cancelled(cluster, run_id)
    assert (run.pending_actions, run.waiting) == ((), None)

    def listed(status: str) -> list[str]:
        query = {"status": status, "conversation_id": run.conversation_id}
        return [each["id"] for each in cluster.http.get("/v1/runs", params=query).json()["data"]]

    assert (listed("requires_action"), listed("cancelled")) == ([], [run_id])
    conversation = cluster.http.get(f"/v1/conversations/{run.conversation_id}").json()
    assert conversation["active_run"] is None
    assert conversation["last_outcome"]["status"] == "cancelled"
    cluster.goes_on(run_id)


def test_log_and_prompt_agree_before_and_after_the_denial(cluster: Cluster) -> None:
    run_id = awaiting_a_decision(cluster)
    run = cluster.run(run_id)
    asked = [("user", "hello"), ("assistant", "")]
    assert said(cluster, run) == asked
    cluster.cancel(run_id)
    assert said(cluster, run) == [*asked, ("tool", DENIED)]
    run = cluster.goes_on(run_id)
    assert prompt(cluster, run) == len(said(cluster, run)) - 1 == 4


def test_every_call_of_a_suspended_turn_is_closed(cluster: Cluster) -> None:
    """Two calls need an approval, one does not; that is either done or has not begun."""
    with frozen(cluster, "tools"):
        waiting = cluster.submit("parallel-3+use-each", "[[args {}]]", tools=["send", "record"])
        cluster.pending(waiting, 2)
        cluster.cancel(waiting)
    done = cluster.submit("parallel-3+use-each", "[[args {}]]", tools=["send", "record"])
    run = cluster.reached(done, "requires_action")
    refused = cluster.http.post("/v1/runs", json=cluster.body("echo", conversation_id=run.conversation_id))
    assert (refused.status_code, refused.json()["code"], refused.json()["run_id"]) == (409, "pending_action", done)
    cluster.cancel(done)
    denied = ("tool", DENIED)
    for run_id, second in ((waiting, denied), (done, ("tool", "recorded"))):
        run = cancelled(cluster, run_id)
        calls = cluster.saw(run_id, "message.created", step="1").data["message"]["tool_calls"]
        assert len(calls) == 3
        assert sorted(said(cluster, run)[2:]) == sorted([denied, second, denied])
        assert cluster.run(cluster.goes_on(run_id).id).usage.model_calls == 1
    assert list(errors(cluster, waiting)) == ["call_1_1_1", "call_1_1_2", "call_1_1_3"]


def test_a_cancel_at_the_moment_of_the_last_step(cluster: Cluster) -> None:
    """The time is sought at which the one or the other comes first."""
    ends, ms = Counter[str](), 20.0
    for _ in range(30):
        run_id = cluster.submit("tool-9", tools=["calculator"], agent={"max_steps": 2})
        wait(ms / 1000)
        acknowledged = cluster.cancel(run_id) in (200, 202)
        run = cluster.ended(run_id)
        assert str(run.stop_reason) == ("cancelled" if acknowledged else "max_steps"), run
        ends[str(run.stop_reason)] += 1
        ms = max(0.0, ms + (2 if acknowledged else -2))
    assert len(ends) == 2, ends


def test_many_cancels_are_one(cluster: Cluster) -> None:
    run_id = streaming(cluster)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: cluster.cancel(run_id), range(16))) <= {200, 202}
    before = cancelled(cluster, run_id)
    for _ in range(2):
        assert cluster.cancel(run_id) == 200
        deliver(cluster, before)
    assert cluster.run(run_id) == before
    assert [event.type for event in cluster.events(run_id)].count("run.cancelling") == 1
    assert len(cluster.model_calls(run_id)) == 1
