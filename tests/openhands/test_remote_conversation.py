"""OpenHands' own clients, of both generations, against a whole Palaver: nothing is changed but the host."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.openhands.client import PATIENCE, ClientError, OpenHandsClient, RemoteConversation
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process
QUICK: Final = {"num_retries": 2, "retry_min_wait": 0, "retry_max_wait": 1, "retry_multiplier": 0.1}


def open_conversation(
    openhands: OpenHandsClient, cluster: Cluster, model: str, *tools: str, **options: Any
) -> RemoteConversation:
    """A conversation with an agent on this model of the model server."""
    llm = {"model": f"fake/{model}", "usage_id": "agent", **QUICK, **options.pop("llm", {})}
    names = [{"name": name} for name in tools]
    return openhands.open(host=f"{cluster.stack.url}/openhands", llm=llm, tools=names, **options)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """What happened, without updates of the state."""
    return [event["kind"] for event in events if event["kind"] != "ConversationStateUpdateEvent"]


def status_there(cluster: Cluster, conversation: RemoteConversation) -> str:
    """The execution status that the server tells."""
    info = cluster.http.get(f"/openhands/api/conversations/{conversation.id}").json()
    return str(info["execution_status"])


def check_told(conversation: RemoteConversation) -> None:
    """Callbacks were told everything once and in order, and the client's list is what the server has."""
    heard = [event["id"] for event in conversation.do("heard") if event.get("key") != "full_state"]
    listed = [event["id"] for event in conversation.do("events") if event.get("key") != "full_state"]
    assert len(set(heard)) == len(heard)
    assert [each for each in listed if each in set(heard)] == heard


def test_an_agent_finishes_with_its_tool(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "tool-1+use-finish")
    conversation.call("send_message", "hello")
    conversation.run()
    # It goes by what the server says of the run; what the client knows comes with the events.
    eventually(lambda: conversation.status == "finished")
    eventually(lambda: "ObservationEvent" in kinds(conversation.do("heard")))
    action = next(event for event in conversation.do("events") if event["kind"] == "ActionEvent")
    assert action["action"]["kind"] == "FinishAction"
    check_told(conversation)
    conversation.leave()


def test_tools_of_the_server_are_used(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "tool-2+use-calculator", "calculator")
    conversation.call("send_message", "hello")
    conversation.run()
    told = ["SystemPromptEvent", "MessageEvent", *["ActionEvent", "ObservationEvent"] * 2, "MessageEvent"]
    eventually(lambda: kinds(conversation.do("heard")) == told)
    assert kinds(conversation.do("events")) == told
    usage = conversation.do("state")["stats"]["usage_to_metrics"]["agent"]["accumulated_token_usage"]
    assert usage["prompt_tokens"] > 0
    check_told(conversation)
    conversation.leave()


def test_a_pause_holds_and_running_goes_on(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "say-40+rate-10")
    conversation.call("send_message", "hello")
    running = conversation.begin("run", poll_interval=0.2, timeout=PATIENCE)
    eventually(
        lambda: (
            cluster.http.get(f"/openhands/api/conversations/{conversation.id}").json()["execution_status"] == "running"
        )
    )
    conversation.call("pause")
    if openhands.generation == "1.58.2":
        running.result()
        assert conversation.status == "paused"
    again = conversation.begin("run", poll_interval=0.2, timeout=PATIENCE)
    again.result()
    eventually(lambda: conversation.status == "finished")
    check_told(conversation)
    conversation.leave()


def test_calls_wait_for_approval_and_rejected_ones_are_not_made(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "tool-2+use-calculator", "calculator")
    conversation.do("confirm", policy="AlwaysConfirm")
    conversation.call("send_message", "hello")
    conversation.run()
    eventually(lambda: conversation.status == "waiting_for_confirmation")
    conversation.call("reject_pending_actions", "Not on a Sunday.")
    eventually(lambda: "UserRejectObservation" in kinds(conversation.do("heard")))
    eventually(lambda: conversation.status == "idle")
    conversation.run()
    eventually(lambda: conversation.status == "waiting_for_confirmation")
    conversation.run()
    eventually(lambda: conversation.status == "finished")
    assert kinds(conversation.do("heard")) == [
        "SystemPromptEvent", "MessageEvent", "ActionEvent", "UserRejectObservation", "ActionEvent", "ObservationEvent",
        "MessageEvent",
    ]  # fmt: skip
    check_told(conversation)
    conversation.leave()


def test_words_into_a_run_are_answered(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "say-10+rate-2")
    conversation.call("send_message", "hello")
    running = conversation.begin("run", poll_interval=0.2, timeout=PATIENCE)
    eventually(
        lambda: (
            cluster.http.get(f"/openhands/api/conversations/{conversation.id}").json()["execution_status"] == "running"
        )
    )
    conversation.call("send_message", "and again")
    running.result()
    eventually(lambda: kinds(conversation.do("heard")) == ["SystemPromptEvent", *["MessageEvent"] * 4])
    check_told(conversation)
    conversation.leave()


def test_an_error_ends_the_wait_with_its_code(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "401-*")
    conversation.call("send_message", "hello")
    newer = openhands.generation == "1.58.2"
    # The older client takes its own error for one of the network, and goes on asking.
    running = conversation.begin("run", poll_interval=0.2, timeout=PATIENCE if newer else 1)
    with pytest.raises(ClientError) as raised:
        running.result()
    if newer:
        assert raised.value.error is not None
        assert raised.value.error["code"] == "LLMAuthenticationError"
    eventually(lambda: conversation.status == "error")
    conversation.leave()


def test_running_what_has_finished_is_nothing(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "echo")
    conversation.call("send_message", "hello")
    conversation.run()
    told = ["SystemPromptEvent", "MessageEvent", "MessageEvent"]
    eventually(lambda: kinds(conversation.do("events")) == told)
    conversation.begin("run", poll_interval=0.2, timeout=PATIENCE).result()
    assert kinds(conversation.do("events")) == told
    conversation.leave()


def test_another_client_attaches(openhands: OpenHandsClient, cluster: Cluster) -> None:
    first = open_conversation(openhands, cluster, "echo")
    first.call("send_message", "hello")
    first.run()
    second = open_conversation(openhands, cluster, "echo", conversation_id=first.id)
    assert second.id == first.id
    assert kinds(second.do("events")) == ["SystemPromptEvent", "MessageEvent", "MessageEvent"]
    second.call("send_message", "again")
    second.run()
    eventually(lambda: len(kinds(first.do("heard"))) == 5)
    check_told(first)
    for each in (first, second):
        each.leave()


def test_hello_world(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "echo")
    conversation.call("send_message", "hello")
    conversation.run()
    # The older client reads the end of a run by HTTP; its own state and its list come by its socket, perhaps later.
    eventually(lambda: conversation.status == "finished")
    heard = ["SystemPromptEvent", "MessageEvent", "MessageEvent"]
    eventually(lambda: kinds(conversation.do("heard")) == heard)
    assert kinds(conversation.do("events")) == heard
    state = conversation.do("state")
    assert (state["agent"], state["policy"]) == ("Agent", "NeverConfirm")
    assert state["workspace"]["working_dir"] == "workspace"
    assert state["kept_at"].endswith(conversation.id.replace("-", ""))
    check_told(conversation)
    conversation.leave()


@pytest.mark.parametrize("killed", [False, True], ids=["SIGTERM", "SIGKILL"])
def test_a_client_outlives_the_api(openhands: OpenHandsClient, cluster: Cluster, killed: bool) -> None:
    conversation = open_conversation(openhands, cluster, "tool-3+use-calculator+ttft-1500", "calculator")
    conversation.call("send_message", "hello")
    running = conversation.begin("run", poll_interval=0.5, timeout=PATIENCE)
    eventually(lambda: status_there(cluster, conversation) == "running")
    if killed:
        cluster.kill("api")
    else:
        api = cluster.terminate("api")
        eventually(lambda: not api.running)
    cluster.start("api")
    running.result()
    eventually(lambda: status_there(cluster, conversation) == "finished")
    told = ["SystemPromptEvent", "MessageEvent", *["ActionEvent", "ObservationEvent"] * 3, "MessageEvent"]
    if openhands.generation == "1.58.2" or not killed:
        eventually(lambda: kinds(conversation.do("heard")) == told)
    else:
        # It never connects its socket again: what it was told until then are the first events, once and in order.
        heard = kinds(conversation.do("heard"))
        assert heard == told[: len(heard)]
        attached = open_conversation(openhands, cluster, "echo", conversation_id=conversation.id)
        assert kinds(attached.do("events")) == told
        attached.leave()
    check_told(conversation)
    conversation.leave()


def test_a_fork_is_another_conversation(openhands: OpenHandsClient, cluster: Cluster) -> None:
    if openhands.generation != "1.58.2":
        pytest.skip("the older client has no forks")
    conversation = open_conversation(openhands, cluster, "echo")
    conversation.call("send_message", "hello")
    conversation.run()
    fork = conversation.fork(title="another")
    assert fork.id != conversation.id
    before = kinds(conversation.do("events"))
    assert kinds(fork.do("events")) == before
    fork.call("send_message", "and again")
    fork.run()
    assert fork.status == "finished"
    assert kinds(fork.do("events")) == [*before, "MessageEvent", "MessageEvent"]
    assert kinds(conversation.do("events")) == before
    for each in (fork, conversation):
        each.leave()


def test_the_agent_is_asked_and_condensed_beside_its_runs(openhands: OpenHandsClient, cluster: Cluster) -> None:
    condenser = {"kind": "LLMSummarizingCondenser", "llm": {"model": "fake/echo", "usage_id": "condenser"}}
    conversation = open_conversation(openhands, cluster, "echo", agent={"condenser": condenser})
    with pytest.raises(ClientError):
        conversation.call("condense")
    for text in ("The first thing. " * 200, "the second"):
        conversation.call("send_message", text)
        conversation.run()
    assert "the third" in conversation.call("ask_agent", "the third")
    if openhands.generation == "1.7.3":
        assert 0 < len(conversation.call("generate_title", max_length=20)) <= 20
    conversation.call("condense")
    assert status_there(cluster, conversation) == "finished"
    eventually(lambda: kinds(conversation.do("heard"))[-1] == "Condensation")
    metrics = conversation.do("state")["stats"]["usage_to_metrics"]["agent"]
    assert metrics["accumulated_token_usage"]["prompt_tokens"] > 0
    conversation.leave()


def test_the_client_carries_out_its_own_tools(openhands: OpenHandsClient, cluster: Cluster) -> None:
    if openhands.generation != "1.58.2":
        pytest.skip("the older client has no tools of its own")
    parameters = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    own = [{"name": "show_it", "description": "Show something.", "parameters": parameters}]
    conversation = open_conversation(openhands, cluster, "tool-1+use-show_it", client_tools=own)
    conversation.call("send_message", '[[args {"what": "a map"}]] hello')
    conversation.run()
    assert conversation.status == "finished"
    eventually(lambda: len(kinds(conversation.do("heard"))) == 5)
    happened = ("ActionEvent", "ObservationEvent")
    action, result = (event for event in conversation.do("events") if event["kind"] in happened)
    assert action["action"] == {"kind": "ClientAction_show_it", "what": "a map"}
    assert result["observation"]["kind"] == "ClientToolObservation"
    check_told(conversation)
    conversation.leave()
    # Who attaches knows them from the server.
    again = open_conversation(openhands, cluster, "echo", conversation_id=conversation.id)
    assert len(kinds(again.do("events"))) == 5
    again.leave()


def test_clients_are_told_how_risky_a_call_is(openhands: OpenHandsClient, cluster: Cluster) -> None:
    conversation = open_conversation(openhands, cluster, "tool-1", "send")
    conversation.call("send_message", '[[args {"seconds": 0}]] hello')
    conversation.run()

    def risks() -> list[str]:
        return [event["security_risk"] for event in conversation.do("events") if event["kind"] == "ActionEvent"]

    eventually(lambda: risks() == ["HIGH"])
    conversation.leave()


def test_what_the_model_says_is_told_as_it_says_it(openhands: OpenHandsClient, cluster: Cluster) -> None:
    if openhands.generation != "1.58.2":
        pytest.skip("the older client does not know how it would be told")
    conversation = open_conversation(openhands, cluster, "say-10+rate-20", llm={"stream": True}, tokens=True)
    for number in (1, 2):
        conversation.call("send_message", f"number {number}")
        conversation.run()
        assert conversation.status == "finished"
        answers = [
            each for each in conversation.do("heard") if each["kind"] == "MessageEvent" and each["source"] == "agent"
        ]
        assert len(answers) == number
    texts = [part["text"] for answer in answers for part in answer["llm_message"]["content"]]
    assert conversation.do("tokens") == "".join(texts)
    conversation.leave()
