"""What OpenHands' own clients do beside talking: come to conversations of others, delete what runs, give secrets."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.vocabulary.ids import uuid_of
from tests.openhands.client import ClientError, OpenHandsClient
from tests.openhands.test_remote_conversation import check_told, kinds, open_conversation
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process


def _ended(cluster: Cluster, body: dict[str, Any]) -> str:
    """The number of the conversation of a run that is over, begun through /v1."""
    run = cluster.http.post("/v1/runs", json=body).json()
    eventually(lambda: cluster.http.get(f"/v1/runs/{run['id']}").json()["status"] in ("completed", "failed"))
    return str(uuid_of(run["conversation_id"]))


@pytest.mark.parametrize("model", ["401-*", "tool-1+use-calculator+args-split"])
def test_a_conversation_of_another_dialect_is_one_for_each_client(
    model: str, openhands: OpenHandsClient, cluster: Cluster
) -> None:
    agent = {"model": f"fake/{model}", "tools": ["calculator"]}
    number = _ended(cluster, {"agent": agent, "input": '[[args {"expression": "1+"}]] hello'})
    attached = open_conversation(openhands, cluster, "echo", conversation_id=number)
    told = kinds(attached.do("events"))
    assert told[:2] == ["SystemPromptEvent", "MessageEvent"]
    assert {"ConversationErrorEvent", "AgentErrorEvent"} & set(told)
    if model != "401-*":
        attached.call("send_message", "and again")
        attached.run()
        eventually(lambda: attached.status == "finished")
        check_told(attached)
    attached.leave()


def test_a_conversation_that_runs_is_deleted(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "say-400+rate-10")
    conversation.call("send_message", "hello")
    conversation.call("run", blocking=False)
    eventually(lambda: "running" in _statuses(cluster, conversation.id))
    newer = openhands.generation == "1.58.2"
    conversation.do("close", delete=newer)
    if not newer:
        # That client deletes none.
        assert cluster.http.delete(f"/openhands/api/conversations/{conversation.id}").status_code == 200
    assert cluster.http.get(f"/openhands/api/conversations/{conversation.id}").status_code == 404


def _statuses(cluster: Cluster, number: str) -> list[str]:
    runs = cluster.http.get("/v1/runs").json()["data"]
    return [run["status"] for run in runs if str(uuid_of(run["conversation_id"])) == number]


def test_nothing_is_looked_up_for_a_client(openhands: OpenHandsClient, cluster: Cluster) -> None:
    if openhands.generation != "1.58.2":
        pytest.skip("that client sends no secrets that are looked up")
    conversation = open_conversation(openhands, cluster, "echo")
    secrets = {"K": {"kind": "LookupSecret", "url": f"{cluster.stack.url}/healthz"}}
    with pytest.raises(ClientError, match="422"):
        conversation.do("keep", secrets=secrets)
    conversation.leave()
