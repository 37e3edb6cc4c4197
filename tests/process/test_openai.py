"""OpenAI's own client at a real stack: streams that go on through kills, tools that are not doubled, cancels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Any]:
    import openai

    url = f"{cluster.stack.url}/openai/v1"
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0, _strict_response_validation=True) as made:
        yield made


def run_of(response: Any) -> str:
    """The id of a response's run."""
    return str(response.metadata["palaver_run_id"])


def text_of(events: Iterable[Any]) -> str:
    """What deltas of the kept item add up to."""
    said = dict[str, str]()
    for event in events:
        if event.type == "response.output_text.delta":
            said[event.item_id] = said.get(event.item_id, "") + event.delta
    return [*said.values()][-1]


def without_deltas(events: Iterable[Any]) -> list[Any]:
    return [event.to_dict() for event in events if not event.type.endswith("delta")]


def test_a_stream_goes_on_behind_its_last_event_through_kills(cluster: Cluster, client: Any) -> None:
    """The worker dies in the middle of an answer, and then the API. Nobody asks for the rest before both are back; what
    the client had and what it gets then is what any later reader gets from the beginning."""
    seen: list[Any] = []
    with client.responses.create(model="fake/say-100+rate-50", input="hello", background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if sum(each.type.endswith("delta") for each in seen) == 10:
                break
    response_id, run_id = seen[0].response.id, run_of(seen[0].response)
    cluster.kill("worker", cluster.holder(run_id))
    cluster.kill("api")
    cluster.start("worker")
    cluster.start("api")
    last = seen[-1].sequence_number
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=last))
    whole = list(client.responses.retrieve(response_id, stream=True))
    assert without_deltas([*seen, *rest]) == without_deltas(whole)
    numbers = [event.sequence_number for event in (*seen, *rest)]
    assert numbers == sorted(set(numbers))
    assert {*numbers} <= {event.sequence_number for event in whole}
    run = cluster.ended(run_id)
    assert whole[-1].response.output_text == run.output == text_of([*seen, *rest]) == text_of(whole)
    done = [event.item.status for event in whole if event.type == "response.output_item.done"]
    assert done == ["incomplete", "completed"]
    assert len(cluster.model_calls(run_id)) == 2


def test_a_worker_is_replaced_without_anybody_asking_and_no_tool_runs_twice(cluster: Cluster, client: Any) -> None:
    tools: Any = [{"type": "mcp", "server_label": "palaver", "allowed_tools": ["record"], "require_approval": "never"}]
    response = client.responses.create(
        model="fake/tool-1", input='[[args {"seconds": 30}]]', tools=tools, background=True
    )
    run_id = run_of(response)
    eventually(lambda: cluster.tool_starts(run_id))
    cluster.kill("tools")
    cluster.kill("worker")
    cluster.start("tools")
    cluster.start("worker")
    # Whoever looks here asks the store, and nobody the API.
    eventually(lambda: [event for event in cluster.events(run_id) if event.type == "run.finished"])
    assert len(cluster.tool_starts(run_id)) == 1
    ended = client.responses.retrieve(response.id)
    calls = [item for item in ended.output if item.type == "mcp_call"]
    assert (ended.status, [item.status for item in calls]) == ("completed", ["failed"])
    assert "may or may not have taken effect" in str(calls[0].output)


def test_a_call_of_the_client_is_answered_after_everything_was_killed(cluster: Cluster, client: Any) -> None:
    tools: Any = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
    first = client.responses.create(model="fake/tool-1", input="hello", tools=tools)
    (call,) = [item for item in first.output if item.type == "function_call"]
    for name in ("worker", "api"):
        cluster.kill(name)
        cluster.start(name)
    answers: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "seen"}]
    second = client.responses.create(model="fake/tool-1", input=answers, previous_response_id=first.id, tools=tools)
    assert (second.status, second.previous_response_id, run_of(second)) == ("completed", first.id, run_of(first))
    assert "seen" in second.output_text
    assert client.responses.retrieve(first.id) == first


def test_a_cancel_ends_the_response_and_its_stream(cluster: Cluster, client: Any) -> None:
    stream = client.responses.create(model="fake/hang", input="hello", background=True, stream=True)
    response = next(iter(stream)).response
    cluster.reached(run_of(response), "running")
    assert client.responses.cancel(response.id).status == "cancelled"
    last = list(stream)[-1]
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    assert client.responses.cancel(response.id).status == "cancelled"


def test_a_chat_that_is_left_is_cancelled(cluster: Cluster, client: Any) -> None:
    messages: Any = [{"role": "user", "content": "hello"}]
    raw = client.chat.completions.with_raw_response.create(model="fake/hang", messages=messages, stream=True)
    run_id = raw.headers["x-run-id"]
    cluster.reached(run_id, "running")
    raw.parse().close()
    assert cluster.ended(run_id).status == "cancelled"
    completion = client.chat.completions.create(model="fake/echo", messages=messages)
    assert completion.choices[0].message.content
