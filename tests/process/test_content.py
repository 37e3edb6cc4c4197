"""Messages that say more than text."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

LOOK = {"type": "text", "text": "look"}
IMAGE = {"type": "image", "url": "data:image/png;base64,iVBORw0KGgo="}


def test_an_image_goes_to_the_model_and_stays_in_the_conversation(cluster: Cluster) -> None:
    body = cluster.body("tool-1", tools=["calculator"])
    run = cluster.ended(cluster.post({**body, "input": [{"role": "user", "content": [LOOK, IMAGE]}]}))
    assert run.status == "completed", run.error
    assert {call.last_user for call in cluster.model_calls(run.id)} == {"look"}
    page = cluster.http.get(f"/v1/conversations/{run.conversation_id}/messages").json()
    assert page["data"][0]["content"] == [LOOK, IMAGE]
    cluster.goes_on(run.id)
    created = next(event for event in cluster.events(run.id) if event.type == "message.created")
    assert created.data["message"]["content"] == [LOOK, IMAGE]
