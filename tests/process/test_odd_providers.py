"""Providers that refuse an image or a tool for good."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.cluster import Cluster
from tests.process.odd_provider import Answer, OddProvider

pytestmark = [pytest.mark.process, pytest.mark.long]

PROVIDERS = ["busy", "busy-claude", "busy-responding"]


def blind(path: str, body: bytes) -> Answer | None:
    """A refusal of each request with an image."""
    said = "messages.0.content.1.image.source.base64.data: Could not process image"
    refused = {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    return (400, refused) if b"iVBORw0KGgo" in body else None


@pytest.fixture
def provider(cluster: Cluster) -> Iterator[OddProvider]:
    odd = OddProvider(cluster.stack.model_url, blind)
    with odd.listening(cluster.busy_port):
        yield odd


@pytest.mark.parametrize("name", PROVIDERS)
def test_an_image_that_is_refused_ends_no_conversation(cluster: Cluster, provider: OddProvider, name: str) -> None:
    image = {"type": "image", "url": "data:image/png;base64,iVBORw0KGgo="}
    said = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
    run_id = cluster.post({"agent": {"model": f"{name}/echo"}, "input": said})
    run = cluster.ended(run_id)
    assert run.status == "completed", run.error
    assert b"left out: the provider refused it" in provider.seen[1]
    (note,) = [event for event in cluster.events(run_id) if event.data.get("nudge")]
    assert note.data["left_out_after"] == 0
    provider.seen.clear()
    following = cluster.ended(cluster.submit(f"{name}/echo", "And now?", conversation_id=run.conversation_id))
    assert following.status == "completed", following.error
    assert len(provider.seen) == 1, "what was refused is not sent again"
    assert b"left out: the provider refused it" in provider.seen[0]
    # The model of the log that tests have does not know what a refusal leaves out.
    cluster.submitted = [each for each in cluster.submitted if each not in (run.id, following.id)]


def picky(path: str, body: bytes) -> Answer | None:
    """A refusal of each request with the tool `odd`, in the words of its API."""
    if b'"name":"odd"' not in body:
        return None
    if path == "/v1/messages":
        said = "tools.1.custom.input_schema: a rule that is not known yet"
        return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    said = "Invalid schema for function 'odd': a rule that is not known yet"
    return 400, {"error": {"message": said, "type": "invalid_request_error", "code": "invalid_function_parameters"}}


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_tool_that_is_refused_costs_one_request(cluster: Cluster, provider: OddProvider, name: str) -> None:
    provider.answers = picky
    odd = {"name": "odd", "parameters": {"type": "object", "properties": {}}, "acknowledgement": "ok"}
    agent = {"client_tools": [odd]}
    run = cluster.ended(cluster.submit(f"{name}/tool-2", tools=["calculator"], agent=agent))
    assert (run.status, run.usage.tool_calls) == ("completed", 2), run.error
    assert len(provider.seen) == 4, "three steps, and once more without the tool"
    (note,) = [event.data["message"]["content"] for event in cluster.events(run.id) if event.data.get("nudge")]
    assert note == "[Automatic note] The tool odd is left out: the provider of this model refused its schema."
    again = cluster.ended(cluster.submit(f"{name}/tool-2", tools=["calculator"], agent=agent))
    assert again.status == "completed", again.error
    assert len(provider.seen) == 7, "the worker has not forgotten it"
    cluster.submitted = [each for each in cluster.submitted if each not in (run.id, again.id)]
