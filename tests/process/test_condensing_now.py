"""Condensing on request, on real workers: a summary in the place of the older part, and nothing else."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster

pytestmark = pytest.mark.process


def test_the_next_run_sees_a_summary(cluster: Cluster) -> None:
    first = cluster.ended(cluster.submit("echo", "The first thing. " * 200))
    second = cluster.ended(cluster.submit("echo", "the second", conversation_id=first.conversation_id))
    answer = cluster.http.post(f"/v1/conversations/{second.conversation_id}/condense")
    assert answer.status_code == 202, answer.text
    run = cluster.ended(answer.json()["id"])
    assert (run.status, run.output, run.usage.model_calls) == ("completed", None, 1)
    kinds = [event.type for event in cluster.events(run.id)]
    assert "conversation.condensed" in kinds
    assert "message.created" not in kinds
    after = cluster.ended(cluster.submit("echo", "and now?", conversation_id=first.conversation_id))
    assert after.usage.input_tokens < first.usage.input_tokens
