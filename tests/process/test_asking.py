"""A question beside a conversation, on real workers: answered with all that was said, and without a trace."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster

pytestmark = pytest.mark.process


def test_a_question_is_answered_while_a_run_goes_on(cluster: Cluster) -> None:
    first = cluster.ended(cluster.submit("tool-1", tools=["calculator"]))
    path = f"/v1/conversations/{first.conversation_id}"
    going = cluster.submit("tool-1", '[[args {"seconds": 3}]]', tools=["record"], conversation_id=first.conversation_id)
    asked = cluster.http.post(f"{path}/ask", json={"question": "What is this about?"}, timeout=40)
    assert asked.status_code == 200, asked.text
    assert asked.json()["answer"]
    assert asked.json()["usage"]["model_calls"] == 1
    cluster.ended(going)
    said = [each["content"] for each in cluster.http.get(f"{path}/messages").json()["data"]]
    assert "What is this about?" not in said
    listed = cluster.http.get("/v1/runs", params={"tag": "ask"}).json()
    assert listed["data"] == []
