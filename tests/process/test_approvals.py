"""Calls that wait for a person's decision or a client's output, and everything that may happen meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from palaver.schemas.actions import digest
from palaver.store.redis import keys
from palaver.vocabulary.ids import shard_of, uuid_of
from tests.process.cluster import Cluster
from tests.process.inputs import decision, tool_output
from tests.process.phases import EDITOR, frozen
from tests.waiting import eventually

pytestmark = pytest.mark.process


def results(cluster: Cluster, run_id: str) -> Mapping[str, dict[str, Any]]:
    """The results in the log, by call id, in the order in which they came."""
    finished = [event.data for event in cluster.events(run_id) if event.type == "tool.finished"]
    return {data["message"]["call_id"]: data for data in finished}


def told(cluster: Cluster, run_id: str) -> Mapping[str, str]:
    """What the model was told of each call."""
    return {call_id: data["message"]["content"] for call_id, data in results(cluster, run_id).items()}


def test_a_call_waits_until_it_is_approved(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", '[[args {"seconds": 0}]]', tools=["send"], agent={"approvals": {"timeout": 60}})
    run = cluster.reached(run_id, "requires_action")
    (action,) = run.pending_actions
    assert (action.type, action.tool, action.call_id) == ("approval", "send", "call_1_1_1")
    assert action.digest == digest("send", action.arguments)
    assert 50 < (action.expires_at - datetime.now(UTC)).total_seconds() <= 60
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.until) == ("approval", action.expires_at)
    assert cluster.tool_starts(run_id) == []
    cluster.take(run_id, decision(action.id, digest=action.digest))
    run = cluster.ended(run_id)
    assert run.output == "done: 1 tool results, the last one: sent after 0 s"
    assert len(cluster.tool_starts(run_id)) == 1
    assert run.usage.tool_calls == 1


def test_the_calls_of_a_turn_do_not_wait_for_each_other(cluster: Cluster) -> None:
    """One needs an approval, one the client, one nobody; the next model call sees all three, in call order."""
    text = '[[args {"seconds": 0.3}]]'
    run_id = cluster.submit("parallel-3+use-each", text, tools=["send", "record"], agent=EDITOR)
    approval, output = cluster.pending(run_id, 2)
    eventually(lambda: cluster.tool_starts(run_id, "record"))
    cluster.saw(run_id, "tool.finished", step="1/call_1_1_2")
    run = cluster.reached(run_id, "requires_action")
    assert [action.type for action in run.pending_actions] == ["approval", "client_tool"]
    run = cluster.answer(run_id, output.call_id, {"lines": 12})
    assert (run.status, run.pending_actions) == ("requires_action", (approval,))
    with frozen(cluster, "tools"):
        run = cluster.approve(run_id)
        assert (run.status, run.waiting, run.pending_actions) == ("running", None, ())
    assert cluster.ended(run_id).status == "completed"
    assert list(results(cluster, run_id)) == ["call_1_1_2", "call_1_1_3", "call_1_1_1"]
    assert told(cluster, run_id)["call_1_1_3"] == '{"lines": 12}'
    # The checks after the test compare digests: results come to the model in call order.
    assert [call.messages for call in cluster.model_calls(run_id)] == [1, 5]


def test_what_nobody_decides_or_answers_in_time_is_told_to_the_model(cluster: Cluster) -> None:
    agent = {"approvals": {"timeout": 1}, "client_tools": [{"name": "open_file", "timeout": 1}]}
    run_id = cluster.submit("parallel-2+use-each", tools=["send"], agent=agent)
    approval, output = cluster.pending(run_id, 2)
    assert cluster.ended(run_id).status == "completed"
    assert told(cluster, run_id) == {
        approval.call_id: "Nobody decided in time, so the tool call was denied.",
        output.call_id: "The client gave no output within 1 s.",
    }
    classes = {call_id: data["error"]["class"] for call_id, data in results(cluster, run_id).items()}
    assert classes == {approval.call_id: "tool_denied", output.call_id: "tool_timeout"}
    assert cluster.tool_starts(run_id) == []


def test_of_many_decisions_on_one_call_the_first_holds(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", tools=["send"])
    (action,) = cluster.pending(run_id)
    items = [decision(action.id, ("approve", "deny")[i % 2]) for i in range(16)]
    with ThreadPoolExecutor(len(items)) as pool:
        answers = list(pool.map(lambda item: cluster.put(run_id, item), items))
    codes = Counter(answer.json().get("code", "") for answer in answers)
    assert codes.pop("") == 1, codes
    assert set(codes) <= {"action_already_resolved", "run_ended"}, codes
    (held,) = (item["decision"] for item, answer in zip(items, answers, strict=True) if answer.is_success)
    cluster.ended(run_id)
    assert cluster.saw(run_id, "action.resolved").data["decision"] == held
    assert len(cluster.tool_starts(run_id)) == (held == "approve")


def test_a_cancel_and_an_approval_at_the_same_time(cluster: Cluster) -> None:
    """Whichever comes first: the run is cancelled, and the call says truthfully whether it had begun."""
    for _ in range(10):
        run_id = cluster.submit("tool-1", '[[args {"seconds": 5}]]', tools=["send"])
        (action,) = cluster.pending(run_id)
        with ThreadPoolExecutor(2) as pool:
            approved = pool.submit(cluster.put, run_id, decision(action.id))
            assert pool.submit(cluster.cancel, run_id).result() in (200, 202)
        assert approved.result().status_code in (200, 202, 409)
        assert cluster.ended(run_id).status == "cancelled"
        (result,) = results(cluster, run_id).values()
        assert result["error"]["class"] in ("tool_denied", "tool_interrupted")
        assert len(cluster.model_calls(run_id)) == 1
    cluster.goes_on(run_id)


def test_an_approved_call_whose_process_dies_is_not_started_again(cluster: Cluster) -> None:
    cluster.expect_traceback("WorkerLostError")
    run_id = cluster.submit("tool-1", '[[args {"seconds": 30}]]', tools=["send"])
    cluster.pending(run_id)
    cluster.approve(run_id)
    (start,) = eventually(lambda: cluster.tool_starts(run_id))
    os.kill(start["pid"], signal.SIGKILL)
    assert cluster.ended(run_id).status == "completed"
    (result,) = results(cluster, run_id).values()
    assert result["error"]["class"] == "tool_interrupted"
    assert len(cluster.tool_starts(run_id)) == 1


def test_everything_that_waits_goes_on_after_everything_was_killed(cluster: Cluster) -> None:
    """One run is paused in the middle of a turn, one waits for an approval, one for the second of three outputs; then
    workers, API and Redis get a SIGKILL. Each result is there once, and the model sees whole histories."""
    gate = cluster.gate()
    paused = cluster.submit("parallel-6", gate.text, tools=["record"])
    eventually(lambda: len(cluster.tool_starts(paused)) == 4)
    cluster.pause(paused)
    gate.open()
    asking = cluster.submit("parallel-2", tools=["send"])
    answering = cluster.submit("parallel-3", agent=EDITOR)
    first, second, third = cluster.pending(answering, 3)
    cluster.answer(answering, first.call_id, "one")
    cluster.reached(paused, "paused")
    before = [cluster.reached(asking, "requires_action"), cluster.reached(answering, "requires_action")]
    names = ("worker", "tools", "api", "redis")
    for name in names:
        cluster.kill(name)
    for name in reversed(names):
        cluster.start(name)
    assert [cluster.run(run.id) for run in before] == before
    assert cluster.run(paused).status == "paused"
    assert cluster.refused(answering, tool_output(first.call_id, "twice")) == (409, "action_already_resolved")
    cluster.resume(paused)
    cluster.approve(asking)
    cluster.answer(answering, third.call_id, "three")
    cluster.answer(answering, second.call_id, "two")
    for run_id in (paused, asking, answering):
        assert cluster.ended(run_id).status == "completed"
    assert list(told(cluster, answering).values()) == ["one", "three", "two"]
    assert [len(cluster.tool_starts(run_id)) for run_id in (paused, asking)] == [6, 2]
    for run_id, messages in ((paused, 8), (asking, 4), (answering, 5)):
        assert [call.messages for call in cluster.model_calls(run_id)] == [1, messages]


def test_no_worker_holds_a_run_that_waits(cluster: Cluster) -> None:
    run_id = cluster.submit("tool-1", tools=["send"])
    cluster.reached(run_id, "requires_action")
    shard = shard_of(run_id)
    with cluster.redis() as server:
        eventually(lambda: server.zcard(keys.due(shard)) == 2, why="the expiry, and the end of the run")
    assert cluster.of_the_store("due") == [keys.due(shard).encode()]
    assert not cluster.of_the_store("ready:*")
    assert cluster.broker.empty()
    begun = time.monotonic()
    assert cluster.run(run_id, wait=20).status == "requires_action"
    assert time.monotonic() - begun < 5, "a long poll waits for what never comes"
    cluster.cancel(run_id)


def test_calls_of_a_tool_that_is_acknowledged_wait_for_nobody(cluster: Cluster) -> None:
    schema = {"type": "object", "properties": {"what": {"enum": ["map"]}}}
    shown = {"name": "show", "parameters": schema, "acknowledgement": "It is on the screen."}
    for what, answer in (("map", "It is on the screen."), ("tree", "do not fit")):
        said = f'[[args {{"what": "{what}"}}]]'
        run_id = cluster.submit("tool-1+use-show", said, tools=["send"], agent={"client_tools": [shown]})
        run = cluster.ended(run_id)
        assert (run.status, run.usage.tool_calls) == ("completed", 1)
        ((_, content),) = told(cluster, run_id).items()
        assert answer in content
        assert not any(event.type == "action.required" for event in cluster.events(run_id))


def test_the_log_says_which_calls_were_risky_and_which_were_not_made(cluster: Cluster) -> None:
    run_id = cluster.submit("parallel-2+use-each", '[[args {"seconds": 0}]]', tools=["send", "calculator"])
    (action,) = cluster.pending(run_id)
    asked = next(event.data for event in cluster.events(run_id) if event.data.get("risky_calls") is not None)
    other = next(each["id"] for each in asked["message"]["tool_calls"] if each["id"] != action.call_id)
    assert (asked["risky_calls"], asked["refused_calls"]) == ([action.call_id], [other])
    cluster.take(run_id, decision(action.id))
    cluster.ended(run_id)


@pytest.mark.parametrize(
    ("model", "more", "made"),
    [
        ("parallel-2+use-each", {"tools": ["finish"]}, [True, False]),
        ("parallel-2-2+use-show", {"budget": {"tool_calls": 3}}, [True, True, False, False]),
    ],
    ids=["behind the end", "beyond the budget"],
)
def test_a_call_that_was_not_made_is_no_action_to_who_would_carry_it_out(
    cluster: Cluster, model: str, more: dict[str, Any], made: list[bool]
) -> None:
    parameters = {"type": "object", "properties": {"message": {"type": "string"}}}
    show = {"name": "show", "parameters": parameters, "acknowledgement": "Shown."}
    run_id = cluster.submit(model, '[[args {"message": "bye"}]]', agent={"client_tools": [show]}, **more)
    number = uuid_of(cluster.ended(run_id).conversation_id)
    begun = [(data.get("error") or {}).get("class") != "tool_denied" for data in results(cluster, run_id).values()]
    answers = [event.data for event in cluster.events(run_id) if event.data.get("risky_calls") is not None]
    asked = [(data, call["id"]) for data in answers for call in data["message"]["tool_calls"]]
    found = cluster.http.get(f"/openhands/api/conversations/{number}/events/search?kind=ActionEvent").json()["items"]
    assert [call_id not in data.get("refused_calls", ()) for data, call_id in asked] == made
    assert (begun, ["action" in event for event in found]) == (made, made)
