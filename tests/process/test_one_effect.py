"""The same request twice, with an API that is killed in between: one effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from palaver.store.scripting.idempotency import sha256
from tests.process.cluster import Cluster
from tests.process.inputs import decision, tool_output
from tests.process.phases import in_a_model_call
from tests.waiting import eventually

pytestmark = pytest.mark.process

Request = tuple[str, dict[str, Any], str]
"""A path, a body and an Idempotency-Key."""


@contextmanager
def sent(cluster: Cluster, requests: list[Request]) -> Iterator[None]:
    """The requests are on their way, each on a connection of its own; nobody will read an answer."""
    with ExitStack() as open_connections:
        for path, body, key in requests:
            connection = open_connections.enter_context(closing(HTTPConnection(urlsplit(cluster.stack.url).netloc)))
            headers = {"Content-Type": "application/json", "Idempotency-Key": key}
            connection.request("POST", path, json.dumps(body), headers)
        yield


def again(cluster: Cluster, requests: list[Request]) -> list[httpx.Response]:
    return [cluster.http.post(path, json=body, headers={"Idempotency-Key": key}) for path, body, key in requests]


@pytest.mark.parametrize("taken", [0, 2, 4])
def test_requests_that_are_repeated_after_the_api_was_killed_have_one_effect(cluster: Cluster, taken: int) -> None:
    """Submit, approve, answer, steer and cancel: the API gets a SIGKILL when the store has taken so many of the first
    four, and before any answer was read."""
    agent = {"client_tools": [{"name": "open_file"}]}
    asking = cluster.submit("parallel-2", '[[args {"seconds": 0}]]', tools=["send"])
    answering = cluster.submit("parallel-2", agent=agent)
    with in_a_model_call(cluster, "echo") as steered:
        cluster.pause(steered, now=True)
    stopped = cluster.submit("say-400+rate-20")
    cluster.saw(stopped, "message.delta")
    cluster.reached(steered, "paused")
    first, second = cluster.pending(asking, 2)
    output, other = cluster.pending(answering, 2)
    body = cluster.body("tool-1", tools=["record"], tags=[f"once-{taken}"])
    requests: list[Request] = [
        ("/v1/runs", body, f"submit-{taken}"),
        (f"/v1/runs/{asking}/input", {"items": [decision(first.id)]}, f"approve-{taken}"),
        (f"/v1/runs/{answering}/input", {"items": [tool_output(output.call_id, "one")]}, f"answer-{taken}"),
        (f"/v1/runs/{steered}/input", {"items": [{"type": "message", "content": "once"}]}, f"steer-{taken}"),
        (f"/v1/runs/{stopped}/cancel", {"mode": "now"}, f"cancel-{taken}"),
    ]
    records = [f"idem:{sha256(key)}" for _, _, key in requests[:4]]
    with sent(cluster, requests):
        eventually(lambda: sum(len(cluster.of_the_store(name)) for name in records) >= taken, every=0.0005)
        cluster.kill("api")
    cluster.start("api")
    answers = again(cluster, requests)
    assert [answer.status_code for answer in answers[:4]] == [202] * 4, [answer.text for answer in answers]
    assert answers[4].status_code in (200, 202)
    assert sum("Idempotency-Replayed" in answer.headers for answer in answers) >= taken
    replays = again(cluster, requests)
    for answer, replay in zip(answers[:4], replays[:4], strict=True):
        assert replay.headers["Idempotency-Replayed"] == "true"
        assert replay.json()["id"] == answer.json()["id"]
    new = answers[0].json()["id"]
    cluster.submitted.append(new)
    cluster.take(asking, decision(second.id, "deny"))
    cluster.answer(answering, other.call_id, "two")
    cluster.resume(steered)
    for run_id in (new, asking, answering, steered):
        assert cluster.ended(run_id).status == "completed"
    assert cluster.ended(stopped).status == "cancelled"
    # One of each.
    listed = cluster.http.get("/v1/runs", params={"tag": f"once-{taken}"}).json()["data"]
    assert [run["id"] for run in listed] == [new]
    assert len(cluster.tool_starts(new)) == 1
    assert len(cluster.tool_starts(asking)) == 1
    for run_id, kind, count in (
        (asking, "action.resolved", 2),
        (answering, "action.resolved", 2),
        (stopped, "run.cancelling", 1),
    ):
        assert [event.type for event in cluster.events(run_id)].count(kind) == count
    assert sum(bool(event.data.get("steer")) for event in cluster.events(steered)) == 1


def test_a_key_that_was_used_with_another_input_is_refused(cluster: Cluster) -> None:
    run_id = cluster.submit("parallel-2", tools=["send"])
    first, second = cluster.pending(run_id, 2)
    assert cluster.put(run_id, decision(first.id), key="mail").status_code == 202
    answer = cluster.put(run_id, decision(second.id), key="mail")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert cluster.run(run_id).pending_actions == (second,)
    assert cluster.put(run_id, decision(second.id, "deny")).status_code == 202
    cluster.ended(run_id)
    # Long after the end a repeat is still told what came of it.
    answer = cluster.put(run_id, decision(first.id), key="mail")
    assert (answer.status_code, answer.headers["Idempotency-Replayed"]) == (200, "true")
