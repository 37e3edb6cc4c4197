"""Secrets of a conversation reach its tools and nobody else, and go with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from palaver.vocabulary.limits import MIB
from tests.process.cluster import Cluster
from tests.process.hostile.answers import raw
from tests.process.hostile.echoes import ECHOES
from tests.process.hostile.server import HostileServer
from tests.process.one_more import one_more
from tests.process.otlp import Receiver
from tests.process.sinks import (
    Sinks,
    monitored,
    of_flower,
    of_messages,
    of_metrics,
    of_processes,
    of_redis,
    of_the_api,
    of_the_export,
)
from tests.process.test_secrets import forms
from tests.process.trusted_tools import CANARY, LATER, NAME, SHORT
from tests.process.typed import palaver
from tests.waiting import eventually

pytestmark = pytest.mark.process

SECRET_KEY = "Qk1vY2tLZXlPZkNvdXJzZU5vdEFSZWFsT25lITEyMzQ="
OLD_KEY = bytes(range(100, 132)).hex()
TOOLS = ("tells", "tells_inline", "fails", "breaks", "asks_for_another")
GIVEN = {NAME: CANARY, "PIN": SHORT}
KEY = "sk-Canary/k1+endpoint7f3e9d2c4b"
FLOWER = ("ann", "a-password-of-flower")
LATE = 300.0
"""Seconds in which the last span has come."""
ONCE = {"retry": {"rules": {each: {"attempts": 1} for each in ("provider_error", "connection", "authentication")}}}


@pytest.fixture(scope="module")
def hostile() -> Iterator[HostileServer]:
    """A provider that says the key again that it is asked with."""
    away = raw(b"HTTP/1.1 307 Elsewhere\r\nLocation: /v1/chat/completions?again\r\nContent-Length: 0\r\n\r\n")
    with HostileServer({**{each.name: each.play for each in ECHOES}, "redirects": away}).running() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, hostile: HostileServer, receiver: Receiver) -> Iterator[Cluster]:
    cluster = Cluster(
        tmp_path_factory.mktemp("trusted"),
        processes={"flower": 1},
        environment={
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "FLOWER_BASIC_AUTH": ":".join(FLOWER),
            "PALAVER_SECRET_KEY": SECRET_KEY,
            "PALAVER_INLINE_PROVIDER_HOSTS": f"127.0.0.1:{hostile.port},localhost:{hostile.port},127.0.0.1:1",
            "PALAVER_API_KEYS": "ann=a-key-of-the-api-0123",
            "PALAVER_TOOLS": "tests.process.trusted_tools",
            "PALAVER_TRACE_CONTENT": "true",
        },
    )
    cluster.http.headers["Authorization"] = "Bearer a-key-of-the-api-0123"
    with cluster:
        yield cluster


def at(hostile: HostileServer, model: str, **endpoint: str) -> dict[str, Any]:
    """An agent whose model is asked at an endpoint of its own."""
    return {
        "model": f"inline/{model}",
        "endpoint": {"base_url": f"http://127.0.0.1:{hostile.port}/v1", "api_key": KEY, **endpoint},
        **ONCE,
    }


@pytest.fixture(scope="module")
def sinks(cluster: Cluster, hostile: HostileServer, receiver: Receiver) -> Iterator[Sinks]:
    with ExitStack() as stack:
        seen = stack.enter_context(monitored(cluster))
        runs = {name: cluster.submit(f"tool-1+use-{name}", "go", tools=[name], secrets=GIVEN) for name in TOOLS}
        runs |= {each.name: cluster.submit("", "go", agent=at(hostile, each.name)) for each in ECHOES}
        for run_id in runs.values():
            cluster.ended(run_id)
        with cluster.redis() as redis_:
            found = of_redis(redis_)
        found |= of_messages(bytes(seen))
        found |= of_the_api(cluster, runs)
        found |= of_the_export(cluster, "a-key-of-the-api-0123")
        found |= of_metrics(cluster)
        found |= of_flower(cluster, FLOWER)
        found |= of_processes(cluster)
        eventually(lambda: set(runs.values()) <= receiver.roots(), within=LATE, why="the spans of all runs")
        found["spans"] = b"\n".join(receiver.bodies)
        # There is something to search: what the tools answered, without what they told.
        assert b"the token has" in found["spans"]
        yield found


@pytest.mark.parametrize("secret", [CANARY, SHORT, KEY])
def test_one_is_nowhere(secret: str, sinks: Sinks) -> None:
    shown = {
        sink: text[max(at - 200, 0) : at + 100]
        for sink, text in sinks.items()
        for form in (forms(secret) if len(secret) > 8 else [secret.encode()])
        if (at := text.lower().find(form.lower())) >= 0
    }
    assert not shown
    assert sum(map(len, sinks.values())) < 64 * MIB


def _results(cluster: Cluster, run_id: str) -> list[str]:
    """What the tools of the run answered."""
    run = cluster.ended(run_id)
    page = cluster.http.get(f"/v1/conversations/{run.conversation_id}/messages").json()["data"]
    return [message["content"] for message in page if message["role"] == "tool" and message["run_id"] == run_id]


def _check_completed_after_waits(cluster: Cluster, run_ids: list[str], code: str) -> None:
    """All of the runs completed, and some waited for a worker that has what ``code`` says."""
    for run_id in run_ids:
        assert cluster.ended(run_id).status == "completed"
    events = (event for run_id in run_ids for event in cluster.events(run_id))
    assert {event.data["code"] for event in events if event.type == "run.waiting"} == {code}


def test_a_tool_has_what_its_answer_does_not_say(cluster: Cluster) -> None:
    (told,) = _results(cluster, cluster.submit("tool-1+use-tells", "go", tools=["tells"], secrets=GIVEN))
    assert told.startswith(f"the token has {len(CANARY)} characters: [redacted], [redacted], ")
    (missed,) = _results(cluster, cluster.submit("tool-1+use-asks_for_another", "go", tools=["asks_for_another"]))
    assert "the conversation has no secret 'NO_SUCH_SECRET'" in missed


def test_the_next_call_has_what_was_set_in_between(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-1+use-tells", "go", tools=["tells"], secrets=GIVEN))
    path = f"/v1/conversations/{run.conversation_id}/secrets"
    assert cluster.http.patch(path, json={"secrets": {NAME: LATER}}).json() == {"data": [NAME, "PIN"]}
    again = cluster.submit("tool-1+use-tells", "go", tools=["tells"], conversation_id=run.conversation_id)
    (told,) = _results(cluster, again)
    assert told.startswith(f"the token has {len(LATER)} characters: [redacted]")


def test_a_step_waits_for_a_worker_that_has_the_key(cluster: Cluster) -> None:
    with one_more(cluster, "worker", PALAVER_SECRET_KEY=OLD_KEY), one_more(cluster, "worker", PALAVER_SECRET_KEY=""):
        run_ids = [cluster.submit("tool-1+use-tells", "go", tools=["tells"], secrets=GIVEN) for _ in range(12)]
        _check_completed_after_waits(cluster, run_ids, "key:PALAVER_SECRET_KEY")


def test_what_was_sealed_before_a_rotation_opens_after_it(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("echo", "hello", secrets=GIVEN))
    cluster.kill("tools")
    with one_more(cluster, "tools", PALAVER_SECRET_KEY=f"{OLD_KEY},{SECRET_KEY}"):
        again = cluster.submit("tool-1+use-tells", "go", tools=["tells"], conversation_id=run.conversation_id)
        (told,) = _results(cluster, again)
    assert told.startswith(f"the token has {len(CANARY)} characters")
    cluster.heal()
    environment = {**os.environ, **cluster.places, "PALAVER_SECRET_KEY": SECRET_KEY}
    done = palaver("secrets", "rotate", environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("No other key is needed any more.\n")


def test_they_go_with_their_conversation(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("echo", "hello", secrets=GIVEN))
    assert cluster.http.delete(f"/v1/conversations/{run.conversation_id}").status_code == 204

    def left() -> list[bytes]:
        with cluster.redis() as redis_:
            return list(redis_.scan_iter(f"*{run.conversation_id}*"))

    eventually(lambda: not left(), why=f"keys of {run.conversation_id}: {left()}")


def test_an_endpoint_of_an_agent_is_asked_with_its_key(cluster: Cluster, hostile: HostileServer) -> None:
    run = cluster.ended(cluster.submit("", "go", agent=at(hostile, "key-in-pieces")))
    assert (run.status, run.output) == ("completed", "Your key is [redacted], or so.")
    assert run.model == "inline:127.0.0.1/key-in-pieces"
    endpoint = run.agent.endpoint
    assert endpoint is not None
    assert (endpoint.base_url, endpoint.api_key) == (f"http://127.0.0.1:{hostile.port}/v1", None)
    # Its conversation has the key, for this address and for no other.
    for base_url, has_key in ((endpoint.base_url, True), (f"http://localhost:{hostile.port}/v1", False)):
        agent = at(hostile, "key-in-pieces") | {"endpoint": {"base_url": base_url}}
        again = cluster.ended(cluster.submit("", "go", agent=agent, conversation_id=run.conversation_id))
        assert (again.output == "Your key is [redacted], or so.") is has_key


def test_a_fork_asks_with_the_same_key(cluster: Cluster, hostile: HostileServer) -> None:
    run = cluster.ended(cluster.submit("", "go", agent=at(hostile, "key-in-pieces")))
    answer = cluster.http.post(f"/v1/runs/{run.id}/retry", json={"from_step": 1, "input": "again"})
    assert answer.status_code == 202, answer.text
    fork = cluster.ended(answer.json()["id"])
    assert fork.conversation_id != run.conversation_id
    assert fork.output == "Your key is [redacted], or so."


def test_a_worker_that_does_not_allow_the_host_leaves_it_to_others(cluster: Cluster, hostile: HostileServer) -> None:
    with one_more(cluster, "worker", PALAVER_INLINE_PROVIDER_HOSTS=""):
        run_ids = [cluster.submit("", "go", agent=at(hostile, "key-in-pieces")) for _ in range(12)]
        _check_completed_after_waits(cluster, run_ids, "provider:inline:127.0.0.1")


def test_an_endpoint_that_is_not_there_fails_its_run_and_nobody_elses(cluster: Cluster) -> None:
    agent = {"model": "inline/x", "endpoint": {"base_url": "http://127.0.0.1:1/v1"}, **ONCE}
    lost = cluster.submit("", "go", agent=agent)
    assert cluster.ended(cluster.submit("echo", "hello")).status == "completed"
    error = cluster.ended(lost).error
    assert error is not None
    assert error["class"] == "connection"
    assert error["provider"] is not None
    assert error["provider"]["name"] == "inline:127.0.0.1"


def test_a_redirect_is_not_followed(cluster: Cluster, hostile: HostileServer) -> None:
    run = cluster.ended(cluster.submit("", "go", agent=at(hostile, "redirects")))
    assert run.status == "failed"
    assert hostile.asked["redirects"] == 1
