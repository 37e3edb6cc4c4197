"""Runs of one conversation come one after the other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.process.cluster import Cluster

pytestmark = pytest.mark.process


def test_a_run_waits_behind_the_one_before_and_begins_by_itself(cluster: Cluster) -> None:
    first = cluster.submit("say-20+rate-20")
    conversation = cluster.run(first).conversation_id
    second = cluster.submit("echo", "second", conversation_id=conversation)
    third = cluster.submit("echo", "third", conversation_id=conversation)
    waiting = cluster.run(second).waiting
    assert waiting is not None
    assert waiting.reason == "conversation_busy"
    ends = [cluster.ended(run_id).times for run_id in (first, second, third)]
    for before, after in pairwise(ends):
        assert before.ended_at is not None
        assert after.started_at is not None
        assert after.started_at >= before.ended_at


def test_the_next_run_knows_what_was_said_before(cluster: Cluster) -> None:
    first = cluster.ended(cluster.submit("tool-2", "one", tools=["calculator", "record"]))
    second = cluster.submit("echo", "two", conversation_id=first.conversation_id)
    assert cluster.ended(second).output == "echo: two"
    (call,) = cluster.model_calls(second)
    assert (call.turn, call.messages) == (2, 7)


def test_many_runs_of_one_conversation_keep_their_order(cluster: Cluster) -> None:
    first = cluster.submit("say-20+rate-20")
    conversation = cluster.run(first).conversation_id
    more = cluster.body("tool-1", tools=["calculator"], conversation_id=conversation)
    runs = [cluster.post({**more, "input": f"number {i}"}) for i in range(20)]
    started = [cluster.ended(run_id).times.started_at for run_id in runs]
    assert started == sorted(started, key=str)
