"""Cancel, at each place where a run can be."""

from __future__ import annotations

from functools import partial

import pytest

from palaver.schemas.models import Run
from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.waiting import eventually

pytestmark = pytest.mark.process


def goes_on(cluster: Cluster, run: Run) -> None:
    """The conversation takes the next run, and its history is one that a provider accepts."""
    following = cluster.ended(cluster.submit("echo", "go on", conversation_id=run.conversation_id))
    assert (following.status, following.output) == ("completed", "echo: go on")


def test_a_stream_is_closed_at_once(cluster: Cluster) -> None:
    run_id = cluster.submit("say-400+rate-20")
    cluster.saw(run_id, "message.delta")
    assert cluster.cancel(run_id) in (200, 202)
    run = cluster.ended(run_id)
    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    call = eventually(lambda: next(c for c in cluster.model_calls(run_id) if c.closed_by_client_at))
    assert call.outcome == "disconnected"
    assert run.cancel is not None
    assert run.cancel.stopped_ms is not None
    goes_on(cluster, run)


def test_a_worker_hears_of_a_cancel_without_asking(cluster: Cluster) -> None:
    """It asks three times a lease, and a lease takes hours here."""
    with one_more(cluster, "worker", PALAVER_LEASE_SECONDS="86400"):
        cluster.kill("worker")
        for stop in (cluster.cancel, partial(cluster.pause, now=True)):
            run_id = cluster.submit("say-400+rate-20")
            cluster.saw(run_id, "message.delta")
            stop(run_id)
            assert cluster.outcomes(run_id) == ["disconnected"]
        cluster.cancel(run_id)


def test_what_the_model_had_said_is_kept(cluster: Cluster) -> None:
    run_id = cluster.submit("say-400+rate-20")
    cluster.saw(run_id, "message.delta")
    cluster.cancel(run_id)
    cluster.ended(run_id)
    message = cluster.saw(run_id, "message.created", step="1").data["message"]
    assert message["partial"]
    assert message["content"].startswith("w1")


def test_a_call_that_is_not_streamed_is_cut_off(cluster: Cluster) -> None:
    run_id = cluster.submit("say-400+rate-20", agent={"stream": False})
    eventually(lambda: cluster.model_calls(run_id))
    assert cluster.cancel(run_id) in (200, 202)
    run = cluster.ended(run_id)
    assert run.status == "cancelled"
    goes_on(cluster, run)


def test_a_tool_that_gives_in_is_stopped(cluster: Cluster) -> None:
    run_id = cluster.submit("parallel-2", '[[args {"seconds": 30}]]', tools=["record"])
    eventually(lambda: len(cluster.tool_starts(run_id)) == 2)
    assert cluster.cancel(run_id) in (200, 202)
    run = cluster.ended(run_id)
    assert run.status == "cancelled"
    answers = [e.data for e in cluster.events(run_id) if e.type == "tool.finished"]
    assert [answer["error"]["class"] for answer in answers] == ["tool_interrupted"] * 2
    assert len(cluster.model_calls(run_id)) == 1
    goes_on(cluster, run)


def test_a_tool_that_does_not_give_in_loses_its_process(cluster: Cluster) -> None:
    cluster.expect_traceback("WorkerLostError")
    run_id = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["stubborn"])
    (start,) = eventually(lambda: cluster.tool_starts(run_id))
    assert cluster.cancel(run_id) in (200, 202)
    assert cluster.ended(run_id).status == "cancelled"
    eventually(lambda: start["pid"] not in cluster.children_of("tools"), why="the process lives on")
    goes_on(cluster, cluster.run(run_id))


def test_a_tool_that_is_a_coroutine_is_stopped(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["wait"])
    cluster.saw(run_id, "step.started", step="1/call_1_1_1")
    assert cluster.cancel(run_id) in (200, 202)
    assert cluster.ended(run_id).status == "cancelled"
    assert "step.lost" not in [event.type for event in cluster.events(run_id)], "its lease ran out"


def test_a_queued_run_never_begins(cluster: Cluster) -> None:
    cluster.kill("worker")
    run_id = cluster.submit("echo")
    cluster.cancel(run_id)
    run = cluster.run(run_id)
    assert run.status == "cancelled"
    cluster.start("worker")
    goes_on(cluster, run)
    assert cluster.model_calls(run_id) == []


def test_a_run_that_backs_off_is_not_tried_again(cluster: Cluster) -> None:
    run_id = cluster.submit("429-*-60")
    eventually(lambda: cluster.run(run_id).waiting)
    cluster.cancel(run_id)
    assert cluster.run(run_id).status == "cancelled"
    assert len(cluster.model_calls(run_id)) == 1


def test_a_run_behind_another_leaves_its_place(cluster: Cluster) -> None:
    first = cluster.submit("say-20+rate-20")
    conversation = cluster.run(first).conversation_id
    second = cluster.submit("echo", conversation_id=conversation)
    third = cluster.submit("echo", conversation_id=conversation)
    cluster.cancel(second)
    assert cluster.run(second).status == "cancelled"
    assert cluster.ended(third).status == "completed"
    assert cluster.run(first).status == "completed"


def test_cancelling_twice_is_cancelling_once(cluster: Cluster) -> None:
    run_id = cluster.submit("say-400+rate-20")
    cluster.saw(run_id, "message.delta")
    assert cluster.cancel(run_id) in (200, 202)
    assert cluster.cancel(run_id) in (200, 202)
    cluster.ended(run_id)
    assert cluster.cancel(run_id) == 200
    assert [event.type for event in cluster.events(run_id)].count("run.cancelling") == 1


def test_a_run_that_ended_otherwise_says_so(cluster: Cluster) -> None:
    run_id = cluster.submit("echo")
    cluster.ended(run_id)
    assert cluster.cancel(run_id) == 409
    assert cluster.run(run_id).status == "completed"


def test_a_cancel_at_any_moment_leaves_a_whole_conversation(cluster: Cluster) -> None:
    """Thirty runs of five turns, each cancelled at another moment of its life."""
    runs = [cluster.submit("tool-5+rate-100", tools=["record_idempotent"]) for _ in range(30)]
    for run_id in runs:
        assert cluster.cancel(run_id) in (200, 202, 409)
    ended = [cluster.ended(run_id) for run_id in runs]
    assert {run.status for run in ended} <= {"cancelled", "completed"}
    for run in ended[::5]:
        goes_on(cluster, run)


def test_each_call_of_a_turn_says_truthfully_what_became_of_it(cluster: Cluster) -> None:
    """Six calls on four children: four had begun, two had not. In call order, one result each."""
    run_id = cluster.submit("parallel-6", '[[args {"seconds": 30}]]', tools=["record"])
    eventually(lambda: len(cluster.tool_starts(run_id)) == 4)
    begun = {start["call"].rpartition(":")[2] for start in cluster.tool_starts(run_id)}
    cluster.cancel(run_id)
    run = cluster.ended(run_id)
    answers = [e.data for e in cluster.events(run_id) if e.type == "tool.finished"]
    classes = {answer["message"]["call_id"]: answer["error"]["class"] for answer in answers}
    assert list(classes) == [f"call_1_1_{i}" for i in range(1, 7)]
    assert {call for call, kind in classes.items() if kind == "tool_interrupted"} == begun
    assert list(classes.values()).count("tool_denied") == 2
    goes_on(cluster, run)


def test_a_call_that_waits_for_a_worker_is_denied(cluster: Cluster) -> None:
    cluster.kill("tools")
    run_id = cluster.submit("tool-1", tools=["record"])
    cluster.saw(run_id, "message.created", step="1")
    cluster.cancel(run_id)
    run = cluster.run(run_id)
    assert run.status == "cancelled"
    answer = cluster.saw(run_id, "tool.finished").data
    assert answer["error"]["class"] == "tool_denied"
    goes_on(cluster, run)
