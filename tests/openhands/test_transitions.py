"""Execution statuses as OpenHands' own clients see them: what each call makes of each, and how a run ends for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.openhands.client import PATIENCE, ClientError, OpenHandsClient, RemoteConversation
from tests.openhands.test_calls import info_of, runs_of
from tests.openhands.test_remote_conversation import check_told, kinds, open_conversation, status_there
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process
_TIMES = 20.0
"""How many times as fast a clock goes in tests of waits."""


def _words(events: list[dict[str, Any]]) -> list[str]:
    """The kind of each event, or the status that it tells."""
    told = [event for event in events if event.get("key") != "full_state"]
    return [str(event["value"]) if event.get("key") == "execution_status" else event["kind"] for event in told]


def _becomes(status: str, conversation: RemoteConversation, cluster: Cluster) -> None:
    """Server and client have this status."""
    eventually(lambda: status_there(cluster, conversation) == status)
    eventually(lambda: conversation.status == status, why=status)


def _fails(conversation: RemoteConversation, newer: bool) -> None:
    # The older client takes its own error for one of the network, and goes on asking.
    with pytest.raises(ClientError):
        conversation.begin("run", poll_interval=0.2, timeout=PATIENCE if newer else 1.0).result()


def test_idle_running_paused_finished(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "say-20+rate-10")
    _becomes("idle", conversation, cluster)
    conversation.call("reject_pending_actions", "There are none.")
    assert status_there(cluster, conversation) == "idle"
    conversation.call("pause")
    _becomes("paused", conversation, cluster)
    conversation.call("send_message", "hello")
    assert status_there(cluster, conversation) == "paused"
    stops = ["pause", "interrupt"] if openhands.generation == "1.58.2" else ["pause"]
    for stop in stops:
        running = conversation.begin("run", poll_interval=0.2)
        _becomes("running", conversation, cluster)
        for _ in range(2):
            conversation.call(stop)
        running.result()
        _becomes("paused", conversation, cluster)
    conversation.run()
    _becomes("finished", conversation, cluster)
    for again in (*stops, "reject_pending_actions"):
        conversation.call(again)
        assert status_there(cluster, conversation) == "finished"
    conversation.call("send_message", "and again")
    _becomes("idle", conversation, cluster)
    check_told(conversation)
    conversation.leave()


def test_error(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "tool-4+use-calculator", "calculator", max_iteration_per_run=3)
    for text in ("hello", "and again"):
        before = status_there(cluster, conversation)
        conversation.call("send_message", text)
        assert status_there(cluster, conversation) == before
        _fails(conversation, openhands.generation == "1.58.2")
        _becomes("error", conversation, cluster)
        for each in ("pause", "reject_pending_actions"):
            conversation.call(each)
            assert status_there(cluster, conversation) == "error"
    conversation.run()
    _becomes("finished", conversation, cluster)
    check_told(conversation)
    conversation.leave()


def test_stuck(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "tool-9+use-calculator+args-split", "calculator")
    conversation.call("send_message", '[[args {"expression": "1+1"}]] hello')
    for _ in range(2):
        _fails(conversation, openhands.generation == "1.58.2")
        _becomes("stuck", conversation, cluster)
    conversation.call("pause")
    assert status_there(cluster, conversation) == "stuck"
    conversation.call("send_message", "hello")
    _becomes("idle", conversation, cluster)
    conversation.run()
    _becomes("finished", conversation, cluster)
    check_told(conversation)
    conversation.leave()


def test_waiting_for_confirmation(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "tool-2+use-calculator", "calculator")
    conversation.do("confirm", policy="AlwaysConfirm")
    conversation.call("send_message", "hello")
    conversation.run()
    _becomes("waiting_for_confirmation", conversation, cluster)
    conversation.call("pause")
    assert status_there(cluster, conversation) == "waiting_for_confirmation"
    # Accepted, and the next one waits.
    conversation.run()
    _becomes("waiting_for_confirmation", conversation, cluster)
    eventually(lambda: _words(conversation.do("heard")).count("ActionEvent") == 2)
    conversation.call("reject_pending_actions", "No.")
    _becomes("idle", conversation, cluster)
    conversation.call("pause")
    _becomes("paused", conversation, cluster)
    conversation.run()
    _becomes("finished", conversation, cluster)
    check_told(conversation)
    conversation.leave()


def test_a_run_is_told_in_order_and_nothing_is_missing(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "tool-1+use-calculator", "calculator")
    conversation.call("send_message", "hello")
    conversation.run()
    told = [
        "SystemPromptEvent",
        "MessageEvent",
        "running",
        "ActionEvent",
        "ObservationEvent",
        "MessageEvent",
        "finished",
    ]
    eventually(lambda: _words(conversation.do("heard")) == told)
    kept = cluster.http.get(f"/openhands/api/conversations/{conversation.id}/events/search").json()["items"]
    assert _words(kept) == told
    # The whole state comes behind the events that it is of, and is what a look shows.
    eventually(lambda: conversation.do("heard")[-1].get("key") == "full_state")
    heard = conversation.do("heard")
    assert heard[-1]["value"].keys() == info_of(cluster, conversation).keys()
    assert [event["value"]["execution_status"] for event in heard if event.get("key") == "full_state"][-1] == "finished"
    shown = conversation.do("shown")
    assert {"agent", "workspace", "persistence_dir", "confirmation_policy", "stats"} <= shown.keys()
    check_told(conversation)
    conversation.leave()


@pytest.fixture
def hastened(openhands: OpenHandsClient) -> Iterator[OpenHandsClient]:
    """A client whose clock goes fast: it waits half a minute before it takes what it reads for an end."""
    openhands.hasten(_TIMES)
    yield openhands
    openhands.hasten(1)


def test_who_is_told_nothing_reads_that_it_is_over(hastened: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(hastened, cluster, "echo")
    conversation.call("send_message", "hello")
    told = ["SystemPromptEvent", "MessageEvent"]
    eventually(lambda: kinds(conversation.do("heard")) == told)
    conversation.do("deafen")
    conversation.begin("run", poll_interval=0.2, timeout=PATIENCE * _TIMES).result()
    assert status_there(cluster, conversation) == "finished"
    assert kinds(conversation.do("heard")) == told, "it was told nothing"
    if hastened.generation == "1.58.2":
        assert conversation.status == "finished"
        assert kinds(conversation.do("events")) == [*told, "MessageEvent"]
    conversation.leave()


def test_two_threads_wait_for_one_run(hastened: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(hastened, cluster, "say-10+rate-10")
    conversation.call("send_message", "hello")
    # Of the newer ones, one takes what both are told; the other reads that it is over.
    both = [conversation.begin("run", poll_interval=0.2, timeout=PATIENCE * _TIMES) for _ in range(2)]
    for each in both:
        each.result()
    eventually(lambda: kinds(conversation.do("heard")) == ["SystemPromptEvent", "MessageEvent", "MessageEvent"])
    assert runs_of(cluster, conversation) == 1
    _becomes("finished", conversation, cluster)
    check_told(conversation)
    conversation.leave()
