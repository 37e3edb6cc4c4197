"""A tool ends the run, on real workers: what came before it in the turn is done, what came behind it is not."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster
from tests.process.test_tools import answers, told

pytestmark = pytest.mark.process

NOT_STARTED = "Not started: %s was called before it, and that ends the run."


@pytest.mark.parametrize("ender", ["finish", "hand_over"])
def test_calls_before_it_are_made_and_those_behind_it_are_not(cluster: Cluster, ender: str) -> None:
    words = '[[args {"message": "it is done"}]]' if ender == "finish" else ""
    tools = ["record", ender, "record_idempotent"] if not words else [ender, "calculator"]
    run = cluster.ended(cluster.submit(f"parallel-{len(tools)}-3+use-each", f"go {words}", tools=tools))
    assert (run.status, run.stop_reason, run.usage.model_calls) == ("completed", "end_turn", 1)
    assert told(cluster, run.id).count("tool_denied") == 1
    texts = [event.data["message"]["content"] for event in answers(cluster, run.id)]
    assert NOT_STARTED % ender in texts
    assert run.output == ("it is done" if words else next(text for text in texts if text.startswith("over to")))
    assert {each["tool"] for each in cluster.tool_starts(run.id)} == ({"record", "hand_over"} if not words else set())

    after = cluster.ended(cluster.submit("echo", "and then?", conversation_id=run.conversation_id))
    assert after.output == "echo: and then?"


def test_thoughts_do_not_end_it(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-3+use-each", tools=["think", "finish"], agent={"max_steps": 3}))
    assert (run.stop_reason, run.usage.model_calls) == ("end_turn", 2)
    assert answers(cluster, run.id)[0].data["message"]["content"] == "The thought is written down."


def test_one_that_fails_does_not_end_it(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-1", tools=["refuse_to_end"]))
    assert (run.status, run.usage.model_calls) == ("completed", 2)
    assert told(cluster, run.id) == ["tool_error"]
