"""Every call of OpenHands' own clients that other tests here do not make on their way: what it does, and what it is
answered."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from palaver.vocabulary.ids import uuid_of
from tests.openhands.client import ClientError, OpenHandsClient, RemoteConversation
from tests.openhands.test_remote_conversation import check_told, kinds, open_conversation, status_there
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process


def info_of(cluster: Cluster, conversation: RemoteConversation) -> dict[str, Any]:
    """The conversation as a look shows it."""
    info: dict[str, Any] = cluster.http.get(f"/openhands/api/conversations/{conversation.id}").json()
    return info


def runs_of(cluster: Cluster, conversation: RemoteConversation) -> int:
    """How often it was run."""
    runs = cluster.http.get("/v1/runs?limit=100").json()["data"]
    return sum(str(uuid_of(run["conversation_id"])) == conversation.id for run in runs)


def test_a_conversation_is_begun_by_its_name_where_there_is_none(openhands: OpenHandsClient, cluster: Cluster) -> None:
    number = str(uuid4())
    if openhands.generation == "1.58.2":
        begun = open_conversation(openhands, cluster, "echo", conversation_id=number)
        assert begun.id == number
        begun.leave()
    else:
        with pytest.raises(ClientError, match="404"):
            open_conversation(openhands, cluster, "echo", conversation_id=number)


def test_the_prompt_has_the_tools_of_the_agent_and_those_of_the_client(
    openhands: OpenHandsClient, cluster: Cluster
) -> None:
    newer = openhands.generation == "1.58.2"
    show = {"name": "show_all", "description": "Show it.", "parameters": {"type": "object", "properties": {}}}
    options: dict[str, Any] = {"client_tools": [show]} if newer else {}
    conversation = open_conversation(openhands, cluster, "echo", "calculator", **options)
    conversation.call("send_message", "hello")
    conversation.run()
    prompt = next(event for event in conversation.do("events") if event["kind"] == "SystemPromptEvent")
    names = [tool["title"] for tool in prompt["tools"]]
    assert names == ["calculator", "finish", "think", *(["show_all"] if newer else [])]
    assert all(tool["description"] for tool in prompt["tools"])
    conversation.leave()


def test_one_is_created_and_attached_to_as_the_server_has_it(openhands: OpenHandsClient, cluster: Cluster) -> None:
    if openhands.generation != "1.58.2":
        pytest.skip("the older client has one way to a conversation")
    host, agent = f"{cluster.stack.url}/openhands", {"llm": {"model": "fake/echo", "usage_id": "agent"}}
    workspace = {"kind": "LocalWorkspace", "working_dir": "workspace"}
    created = openhands.connect(host=host, request={"agent": agent, "workspace": workspace, "max_iterations": 7})
    assert info_of(cluster, created)["max_iterations"] == 7
    created.call("send_message", "hello")
    created.run()
    attached = openhands.connect(host=host, conversation_id=created.id)
    assert kinds(attached.do("events")) == ["SystemPromptEvent", "MessageEvent", "MessageEvent"]
    assert attached.status == "finished"
    with pytest.raises(ClientError, match="404"):
        openhands.connect(host=host, conversation_id=str(uuid4()))
    for each in (created, attached):
        each.leave()


def test_a_long_conversation_is_read_page_by_page(openhands: OpenHandsClient, cluster: Cluster) -> None:
    begun = cluster.http.post("/v1/conversations", json={"agent": {"model": "fake/echo"}}).json()
    said = [{"role": "user", "content": f"message {n}"} for n in range(250)]
    assert cluster.http.post(f"/v1/conversations/{begun['id']}/messages", json={"input": said}).status_code == 201
    attached = open_conversation(openhands, cluster, "echo", conversation_id=str(uuid_of(begun["id"])))
    listed = [event for event in attached.do("events") if event["kind"] == "MessageEvent"]
    assert [event["llm_message"]["content"][0]["text"] for event in listed] == [each["content"] for each in said]
    attached.run()
    # Of a conversation that another dialect has begun, a client is told also what was said just before it came.
    eventually(lambda: [each for each in attached.do("heard") if each["source"] == "agent"])
    check_told(attached)
    attached.leave()


def test_what_runs_is_run_once(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "say-20+rate-20")
    with pytest.raises(ClientError, match="422") as nothing_said:
        conversation.run()
    assert nothing_said.value.kind == "ConversationRunError"
    conversation.call("send_message", "hello", sender="somebody")
    conversation.call("run", blocking=False)
    assert status_there(cluster, conversation) == "running"
    # 409: it is waited for.
    conversation.run()
    eventually(lambda: kinds(conversation.do("heard")) == ["SystemPromptEvent", "MessageEvent", "MessageEvent"])
    assert status_there(cluster, conversation) == "finished"
    assert runs_of(cluster, conversation) == 1
    check_told(conversation)
    conversation.leave()


def test_a_wait_for_what_is_deleted_is_over(openhands: OpenHandsClient, cluster: Cluster) -> None:
    if openhands.generation != "1.58.2":
        pytest.skip("the older client waits on, whatever it is answered")
    conversation = open_conversation(openhands, cluster, "say-400+rate-10")
    conversation.call("send_message", "hello")
    running = conversation.begin("run", poll_interval=0.2)
    eventually(lambda: status_there(cluster, conversation) == "running")
    assert cluster.http.delete(f"/openhands/api/conversations/{conversation.id}").status_code == 200
    with pytest.raises(ClientError, match="404") as gone:
        running.result()
    assert gone.value.kind == "ConversationRunError"
    conversation.leave()


def test_only_risky_calls_wait_and_then_none(openhands: OpenHandsClient, cluster: Cluster) -> None:
    agent: dict[str, Any] = {"include_default_tools": []}
    conversation = open_conversation(openhands, cluster, "tool-2+use-each", "calculator", "send", agent=agent)
    conversation.do("analyze")
    conversation.do("confirm", policy="ConfirmRisky")
    eventually(lambda: conversation.do("state")["policy"] == "ConfirmRisky")
    assert conversation.do("state")["analyzer"] == "LLMSecurityAnalyzer"
    conversation.call("send_message", "hello")
    conversation.run()
    eventually(lambda: conversation.status == "waiting_for_confirmation")
    asked = ["SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "ActionEvent"]
    eventually(lambda: kinds(conversation.do("heard")) == asked)
    conversation.run()
    done = [*asked, "ObservationEvent", "MessageEvent"]
    eventually(lambda: kinds(conversation.do("heard")) == done)
    conversation.do("confirm", policy="NeverConfirm")
    conversation.call("send_message", "and again")
    conversation.run()
    turn = ["MessageEvent", *["ActionEvent", "ObservationEvent"] * 2, "MessageEvent"]
    eventually(lambda: kinds(conversation.do("heard")) == [*done, *turn])
    check_told(conversation)
    conversation.leave()


def test_many_events_are_condensed_however_short_they_are(openhands: OpenHandsClient, cluster: Cluster) -> None:
    llm = {"model": "fake/echo", "usage_id": "condenser"}
    condenser = {"kind": "LLMSummarizingCondenser", "llm": llm, "max_size": 11, "keep_first": 2}
    conversation = open_conversation(openhands, cluster, "echo", agent={"condenser": condenser})
    said = ["MessageEvent"] * 11
    for number in range(len(said)):
        conversation.call("send_message", f"number {number}")
    conversation.run()
    eventually(lambda: kinds(conversation.do("heard")) == ["SystemPromptEvent", *said, "Condensation", "MessageEvent"])
    answer = [event for event in conversation.do("heard") if event["kind"] == "MessageEvent"][-1]
    assert "number 10" in str(answer["llm_message"])
    check_told(conversation)
    conversation.leave()


def test_what_only_the_newer_client_asks_for(openhands: OpenHandsClient, cluster: Cluster) -> None:
    if openhands.generation != "1.58.2":
        pytest.skip("the older client has none of these calls")
    conversation = open_conversation(openhands, cluster, "echo")
    for text in ("the first", "the second"):
        conversation.call("send_message", text)
        conversation.run()
    conversation.call("set_title", "A title")
    assert info_of(cluster, conversation)["title"] == "A title"
    with pytest.raises(ClientError, match="404"):
        conversation.call("load_plugin", "a/plugin")
    first = next(event for event in conversation.do("events") if event["source"] == "user")
    conversation.call("navigate_to", first["id"])
    assert conversation.status == "idle"
    conversation.run()
    answers = [each for each in conversation.do("events") if each["source"] == "agent"]
    assert "the first" in str(answers[-1])
    with pytest.raises(ClientError, match="422"):
        conversation.call("navigate_to", str(uuid4()))
    check_told(conversation)
    conversation.leave()
