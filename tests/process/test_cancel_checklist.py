"""What stopping promises, wherever a run is: the checklist B1 to B16, by number (B15 is in test_cancel_errors.py)."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import pytest

from palaver.schemas.models import Run
from palaver.store.redis import keys
from tests.process.aftermath import DENIED, cancelled, errors, outcome, prompt, said
from tests.process.cluster import Cluster, stream
from tests.process.phases import (
    BEGUN,
    EDITOR,
    FOR_LONG,
    LONG,
    NOT_BEGUN,
    WHOLE,
    asking,
    awaiting_a_decision,
    frozen,
    streaming,
)
from tests.waiting import eventually

pytestmark = pytest.mark.process


def closed(cluster: Cluster, run: Run) -> bool:
    """Whether the client of the run's only model call was gone before the answer was out, once it is."""
    call = eventually(lambda: next(c for c in cluster.model_calls(run.id) if c.closed_by_client_at))
    return cluster.model_calls(run.id) == [call]


@pytest.mark.parametrize("phase", NOT_BEGUN)
def test_before_the_start(cluster: Cluster, phase: str) -> None:
    run_id = NOT_BEGUN[phase](cluster)
    assert cluster.cancel(run_id) == 200
    run = cancelled(cluster, run_id)
    assert run.usage.model_calls == 0
    assert (cluster.model_calls(run_id), cluster.tool_starts(run_id)) == ([], [])
    # Its words were never said.
    following = cluster.goes_on(run_id)
    assert prompt(cluster, following) == (1 if phase == "scheduled" else 3)


def test_in_a_token_stream(cluster: Cluster) -> None:
    """The model's connection is closed at once, also where no token came yet, and watchers see one end."""
    for run_id in (streaming(cluster), asking(cluster, "hang"), asking(cluster, "say-5+stall-*-3")):
        assert cluster.cancel(run_id) in (200, 202)
        run = cancelled(cluster, run_id)
        assert closed(cluster, run)
        seen = [event["event"] for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events")]
        assert (seen[-1], seen.count("run.finished"), seen.count("run.cancelling")) == ("run.finished", 1, 1)


def test_in_a_model_call_that_is_not_streamed(cluster: Cluster) -> None:
    """Nothing of the answer is kept, and it is not waited for."""
    for model in ("hang", LONG):
        run_id = asking(cluster, model, agent=WHOLE)
        assert cluster.cancel(run_id) in (200, 202)
        run = cancelled(cluster, run_id)
        assert closed(cluster, run)
        assert said(cluster, run) == [("user", "hello")]
        assert (run.output, run.usage.model_calls) == (None, 1)


def test_in_tools(cluster: Cluster) -> None:
    """What has finished, well or not, has its result; what had begun is in doubt; no model is asked any more."""
    mixed = cluster.submit("parallel-3+use-each", "[[args {}]]", tools=["record", "linger", "fail"])
    begun = cluster.submit("parallel-2+use-each", FOR_LONG, tools=["linger", "wait"])
    for step in ("1/call_1_1_1", "1/call_1_1_3"):
        cluster.saw(mixed, "tool.finished", step=step)
    cluster.saw(begun, "step.started", step="1/call_1_1_2")
    for run_id in (mixed, begun):
        eventually(partial(cluster.tool_starts, run_id, "linger"))
        assert cluster.cancel(run_id) in (200, 202)
        cancelled(cluster, run_id)
        assert len(cluster.model_calls(run_id)) == 1
        cluster.goes_on(run_id)
    classes = errors(cluster, mixed)
    assert [classes[f"call_1_1_{i}"] for i in (1, 2, 3)] == ["", "tool_interrupted", "tool_error"]
    assert set(errors(cluster, begun).values()) == {"tool_interrupted"}


def test_while_somebody_is_asked(cluster: Cluster) -> None:
    """Each call has one result. What a client may have begun is in doubt, and said to be."""
    run_id = cluster.submit("parallel-3+use-each", tools=["send"], agent=EDITOR)
    cluster.pending(run_id, 3)
    assert cluster.cancel(run_id) in (200, 202)
    run = cancelled(cluster, run_id)
    doubt = "The user cancelled the request before the client gave its output. It may or may not have taken effect."
    assert said(cluster, run)[2:] == [("tool", DENIED), ("tool", doubt), ("tool", DENIED)]
    assert run.pending_actions == ()
    cluster.goes_on(run_id)


def test_a_message_to_a_suspended_conversation(cluster: Cluster) -> None:
    run_id = awaiting_a_decision(cluster)
    run = cluster.run(run_id)
    body = cluster.body("echo", conversation_id=run.conversation_id)
    for key in (None, "again", "again"):
        refused = cluster.http.post("/v1/runs", json=body, headers={"Idempotency-Key": key} if key else {})
        problem = refused.json()
        assert (refused.status_code, problem["code"], problem["run_id"]) == (409, "pending_action", run_id)
        assert [action["id"] for action in problem["pending_actions"]] == [run.pending_actions[0].id]
    conversation = cluster.http.get(f"/v1/conversations/{run.conversation_id}").json()
    assert (conversation["active_run"], conversation["queued_runs"]) == (run_id, [])
    cluster.cancel(run_id)
    # The key was used for nothing.
    assert cluster.post(body, "again") != run_id


def test_log_and_prompt_are_the_same_after_a_worker_died_in_a_cancel(cluster: Cluster) -> None:
    runs = [streaming(cluster), cluster.submit("parallel-2", FOR_LONG, tools=["wait"])]
    cluster.saw(runs[1], "step.started", step="1/call_1_1_2")
    with frozen(cluster, "worker"), frozen(cluster, "tools"):
        for run_id in runs:
            assert cluster.cancel(run_id) == 202
        cluster.kill("worker")
        cluster.kill("tools")
        cluster.start("worker")
        cluster.start("tools")
    for run_id in runs:
        cancel = cancelled(cluster, run_id).cancel
        assert cancel is not None
        assert cancel.stopped_ms is not None
        run = cluster.goes_on(run_id)
        assert prompt(cluster, run) == len(said(cluster, run)) - 1


def test_b13_b16_wherever_a_run_is(cluster: Cluster) -> None:
    """All places at once, and one request that cancels everything: within 2 s each run has ended, its conversation says
    so, and its next run completes."""
    places = {**BEGUN, **NOT_BEGUN}
    runs = {place: bring(cluster, tags=["everywhere"]) for place, bring in places.items()}

    def calls() -> int:
        return sum(call.run in runs.values() for call in cluster.model_calls())

    before = calls()
    answer = cluster.http.post("/v1/runs/actions", json={"action": "cancel", "filter": {"tag": "everywhere"}})
    assert answer.json()["done"] >= len(runs), answer.text
    for place, run_id in runs.items():
        run = cancelled(cluster, run_id)
        assert run.cancel is not None
        assert run.cancel.stopped_ms is not None
        assert "step.lost" not in [event.type for event in cluster.events(run_id)], place
        assert outcome(cluster, run) == "cancelled", place
    assert calls() == before, "a model was asked behind the cancel"
    cluster.forget_cool_downs()
    following = {
        place: cluster.submit("echo", "go on", conversation_id=cluster.run(run_id).conversation_id)
        for place, run_id in runs.items()
    }
    for place, run_id in following.items():
        run = cluster.ended(run_id)
        assert (run.status, run.output) == ("completed", "echo: go on"), place
        assert outcome(cluster, run) == "completed", place
    # The places of a provider that takes two at a time were given back.
    full = [cluster.submit("narrow/echo") for _ in range(4)]
    assert {cluster.ended(run_id).status for run_id in full} == {"completed"}


def test_an_acknowledged_cancel_wins_over_an_answer_that_comes_later(cluster: Cluster) -> None:
    """The worker is frozen with a whole answer in its socket, until others have ended the run."""
    run_id = cluster.submit("say-100+rate-20")
    cluster.saw(run_id, "message.delta")
    first = cluster.stack.kill("worker", 0, signal.SIGSTOP)
    assert cluster.cancel(run_id) == 202
    cluster.start("worker")
    before = cancelled(cluster, run_id)
    assert before.stop_reason is not None
    assert before.stop_reason.status == before.status
    assert cluster.outcomes(run_id) == ["answered"]
    os.killpg(first, signal.SIGCONT)
    cluster.goes_on(run_id)
    assert cluster.run(run_id) == before


def test_cancelling_what_has_ended_says_how_it_ended(cluster: Cluster) -> None:
    ends = {
        "completed": cluster.submit("echo"),
        "failed": cluster.submit("401"),
        "incomplete": cluster.submit("tool-2", tools=["calculator"], agent={"max_steps": 1}),
        "expired": cluster.submit("hang", deadline=soon()),
    }
    for status, run_id in ends.items():
        before = cluster.ended(run_id)
        assert before.status == status
        for mode in ("now", "rollback"):
            answer = cluster.http.post(f"/v1/runs/{run_id}/cancel", json={"mode": mode})
            assert (answer.status_code, answer.json()["code"]) == (409, "run_ended")
            assert status in answer.json()["detail"]
        assert cluster.run(run_id) == before


def soon() -> str:
    """A deadline."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))


def test_a_cancelled_run_leaves_nothing_that_waits(cluster: Cluster) -> None:
    """The checks after the test look for it: steps, due entries, deliveries. Its keys go with the retention."""
    run = cluster.run(streaming(cluster))
    cluster.cancel(run.id)
    cancelled(cluster, run.id)
    with cluster.redis() as server:
        left = {name.decode() for name in server.scan_iter(f"*{run.id}*")}
        assert left == {keys.run(run.id), keys.feed(run.id)}
        assert all(server.ttl(name) > 0 for name in left)
        assert server.ttl(keys.log(run.conversation_id)) > 0
