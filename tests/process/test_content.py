"""Messages that say more than text."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.long]

LOOK = {"type": "text", "text": "look"}
IMAGE = {"type": "image", "url": "data:image/png;base64,iVBORw0KGgo="}


PNG = "data:image/png;base64,iVBORw0KGg"


def test_an_image_of_a_tool_reaches_the_model_behind_the_results(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("parallel-2-2+use-screenshot", tools=["screenshot"]))
    assert (run.status, run.usage.tool_calls) == ("completed", 4), run.error
    assert run.output == "done: 4 tool results, the last one: This is 1 + 4.\n[image]"
    finished = [event for event in cluster.events(run.id) if event.type == "tool.finished"]
    for event in finished:
        text, image = event.data["message"]["content"]
        assert (text["type"], image["type"], image["url"][: len(PNG)]) == ("text", "image", PNG)
    assert {call.status for call in cluster.finished_calls(run.id)} == {200}
    cluster.goes_on(run.id)


def test_an_image_that_is_too_large_is_no_result(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-1", '[[args {"width": 900000}]]', tools=["poster"]))
    assert run.status == "completed", run.error
    assert run.output is not None
    assert "at most 1,048,576: make them smaller" in run.output


def test_a_file_goes_to_the_model(cluster: Cluster) -> None:
    file = {"type": "file", "url": "data:application/pdf;base64,JVBERi0=", "name": "a.pdf"}
    run = cluster.ended(cluster.post({**cluster.body("echo"), "input": [{"role": "user", "content": [LOOK, file]}]}))
    assert (run.status, run.output) == ("completed", "echo: look"), run.error


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
