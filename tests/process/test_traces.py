"""One trace a run: what a collector gets. That it is whole, whoever is killed, is seen in test_random_kills.py."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from features.stack.child import ChildCommand
from features.stack.plan import COMMANDS
from palaver.config.exits import EX_CONFIG
from palaver.schemas.models import Run
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.otlp import LATE, Receiver, Span
from tests.process.warm import cold_starts
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CANARY = "canary-j1-of-a-conversation"


@pytest.fixture
def cluster(traced: Cluster, receiver: Receiver) -> Iterator[Cluster]:
    """A Palaver whose traces go to the receiver; afterwards each run that ended is one whole trace there."""
    traced.heal()
    traced.mark()
    yield traced
    traced.heal()
    check(traced)
    sampled = set(traced.submitted) - UNSAMPLED
    eventually(lambda: sampled <= receiver.roots(), within=LATE, why="the roots of all runs")
    receiver.check()


UNSAMPLED: set[str] = set()


def _submit(cluster: Cluster, model: str, flags: str, **more: Any) -> Run:
    """Submit for a caller that is in a trace itself; the run once it has ended."""
    header = {"traceparent": f"00-{CALLER[0]}-{CALLER[1]}-{flags}"}
    answer = cluster.http.post("/v1/runs", json=cluster.body(model, **more), headers=header)
    assert answer.status_code == 202, answer.text
    run_id = answer.json()["id"]
    if flags == "00":
        UNSAMPLED.add(run_id)
    cluster.submitted.append(run_id)
    return cluster.ended(run_id)


def _trace(receiver: Receiver, run_id: str) -> list[Span]:
    eventually(lambda: run_id in receiver.roots(), within=LATE)
    return receiver.of(run_id)


def _lines(cluster: Cluster, run_id: str) -> list[dict[str, Any]]:
    texts = (text for log in cluster.new_logs().values() for text in log.splitlines() if run_id in text)
    return [json.loads(text) for text in texts if text.startswith("{")]


def test_a_run_is_one_trace_below_its_caller(cluster: Cluster, receiver: Receiver) -> None:
    run = _submit(cluster, "tool-2", "01", tools=["record"], agent={"name": "clerk"})
    root, *others = _trace(receiver, run.id)
    assert (root.name, root.kind) == ("invoke_agent clerk", "SPAN_KIND_INTERNAL")
    assert (root.trace_id, root.parent_id) == CALLER
    assert run.trace_id == CALLER[0]
    usage = {name: root.attributes[f"gen_ai.usage.{name}"] for name in ("input_tokens", "output_tokens")}
    assert usage == {"input_tokens": run.usage.input_tokens, "output_tokens": run.usage.output_tokens}
    assert root.attributes["palaver.run.stop_reason"] == "end_turn"
    assert [span.name for span in others] == [
        "chat tool-2", "execute_tool record", "chat tool-2", "execute_tool record", "chat tool-2",
    ]  # fmt: skip
    chat, tool = others[0], others[1]
    assert chat.kind == "SPAN_KIND_CLIENT"
    assert chat.attributes["gen_ai.provider.name"] == "fake"
    assert chat.attributes["gen_ai.request.model"] == "tool-2"
    assert chat.attributes["gen_ai.conversation.id"] == run.conversation_id
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert chat.attributes["gen_ai.response.model"] == "tool-2"
    ids = [span.attributes["gen_ai.response.id"] for span in others if span.name.startswith("chat")]
    assert len(set(ids)) == 3
    assert all(each.startswith("chatcmpl-") for each in ids)
    assert chat.attributes["gen_ai.usage.input_tokens"] > 0
    assert chat.attributes["gen_ai.response.time_to_first_chunk"] > 0
    assert tool.kind == "SPAN_KIND_INTERNAL"
    assert tool.attributes["gen_ai.tool.name"] == "record"
    assert tool.attributes["palaver.worker"].startswith("tools.")
    assert sum(span.attributes.get("gen_ai.usage.input_tokens", 0) for span in others) == run.usage.input_tokens
    assert all(root.began <= span.began <= span.ended <= root.ended for span in others)


def test_log_lines_name_the_trace(cluster: Cluster, receiver: Receiver) -> None:
    run = _submit(cluster, "401", "01")
    (attempt,) = [span for span in _trace(receiver, run.id) if not span.is_root]
    (told,) = [line for line in _lines(cluster, run.id) if " failed at step " in line["message"]]
    assert (told["trace_id"], told["span_id"]) == (CALLER[0], attempt.span_id)
    assert attempt.failed
    assert attempt.attributes["error.type"] == "authentication"
    (asked,) = [line for line in _lines(cluster, run.id) if "POST /v1/runs" in line["message"]]
    assert (asked["trace_id"], asked["run"]) == (CALLER[0], run.id)


def test_a_caller_that_is_not_sampled_gets_no_spans_and_keeps_its_id(cluster: Cluster, receiver: Receiver) -> None:
    unsampled = _submit(cluster, "echo", "00")
    sampled = _submit(cluster, "echo", "01")
    _trace(receiver, sampled.id)
    assert unsampled.trace_id == CALLER[0]
    assert not receiver.of(unsampled.id)


def test_inline_calls_and_tools_are_told_where_they_are(cluster: Cluster, receiver: Receiver) -> None:
    """A tool that calls somebody else can send the span of its call along."""
    run = _submit(cluster, "parallel-2+use-each", "01", tools=["tell_inline", "tell"])
    spans = {span.span_id: span for span in _trace(receiver, run.id)}
    results = [event.data for event in cluster.events(run.id) if event.type == "tool.finished"]
    said = {json.loads(each["message"]["content"])["traceparent"] for each in results}
    named = [re.fullmatch(f"00-{CALLER[0]}-(.{{16}})-01", each) for each in said]
    assert sorted(spans[each[1]].name for each in named if each) == ["execute_tool tell", "execute_tool tell_inline"]


def test_a_collector_that_is_away_holds_nothing_up(cluster: Cluster, receiver: Receiver) -> None:
    receiver.answers = 503
    try:
        runs = [cluster.submit("tool-1", tools=["calculator"]) for _ in range(3)]
        assert {cluster.ended(run_id).status for run_id in runs} == {"completed"}
        eventually(lambda: receiver.refused)
        assert not any(receiver.of(run_id) for run_id in runs)
    finally:
        receiver.answers = 200
    for run_id in runs:
        assert len(_trace(receiver, run_id)) == 4


def test_a_collector_that_never_answers_holds_nothing_up(cluster: Cluster, receiver: Receiver) -> None:
    """It has taken spans of one run, and says nothing, while others begin and end in the worker that waits for it."""
    with receiver.silent():
        runs = [cluster.submit("echo")]
        eventually(lambda: receiver.unanswered, within=LATE)
        runs += [cluster.submit("tool-1", tools=["calculator"]) for _ in range(3)]
        assert {cluster.ended(run_id).status for run_id in runs} == {"completed"}
        assert not any(receiver.of(run_id) for run_id in runs)
    assert [len(_trace(receiver, run_id)) for run_id in runs] == [2, 4, 4, 4]


def test_no_content_is_in_a_trace_or_a_log(cluster: Cluster, receiver: Receiver) -> None:
    run = _submit(
        cluster,
        "parallel-2+use-each",
        "01",
        text=f'{CANARY} [[args {{"seconds": 0, "{CANARY}": "x"}}]]',
        tools=["record", "fail"],
        agent={"instructions": CANARY, "name": "clerk"},
        metadata={"note": CANARY},
    )
    assert CANARY in str(cluster.events(run.id)), "nothing to find"
    assert len(_trace(receiver, run.id)) >= 3
    assert not any(CANARY.encode() in body for body in receiver.bodies)
    assert not any(CANARY in log for log in cluster.new_logs().values())


def test_what_a_provider_says_of_an_error_is_in_no_trace_and_no_log(cluster: Cluster, receiver: Receiver) -> None:
    answer = json.dumps({"status": 500, "body": {"error": {"message": CANARY}}})
    once_more = {"rules": {"provider_error": {"attempts": 2, "first": 0.1}}}
    run = _submit(cluster, "raw", "01", text=f"[[raw {answer}]]", agent={"retry": once_more})
    assert run.error is not None
    assert run.error["provider"] is not None
    assert run.error["provider"].get("message") == CANARY
    assert [each.data["error"]["provider"]["message"] for each in cluster.events(run.id) if each.type == "run.retrying"]
    assert len(_trace(receiver, run.id)) == 3
    assert not any(CANARY.encode() in body for body in receiver.bodies)
    assert not any(CANARY in log for log in cluster.new_logs().values())


@pytest.mark.parametrize(
    ("role", "variable", "value", "said"),
    [
        ("worker", "PYTHONPATH", "", "what sends traces is not installed: pip install 'palaver[otel]'"),
        ("worker", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL: Palaver sends traces as"),
        ("api", "OTEL_TRACES_SAMPLER", "always", "OTEL_TRACES_SAMPLER: Palaver has parentbased_always_on"),
    ],
)
def test_an_environment_that_does_not_fit_is_said_in_one_sentence(
    cluster: Cluster, tmp_path: Path, role: str, variable: str, value: str, said: str
) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('not here')")
    environment = {**cluster.children(role)[0].environment, variable: value or str(tmp_path)}
    refused = ChildCommand(
        role, COMMANDS[role], environment=environment, log_path=tmp_path / "log", ready=lambda child: False
    )
    # Without OpenTelemetry is no fork of who has it.
    with cold_starts() if variable == "PYTHONPATH" else nullcontext():
        refused.start()
    refused.reap(time.monotonic() + 60)
    assert refused.exit_code == EX_CONFIG
    assert said in refused.output
    assert "Traceback" not in refused.output


def test_a_sender_that_dies_before_it_can_say_so_sends_nothing_twice(cluster: Cluster, receiver: Receiver) -> None:
    """The collector has the spans, and the store does not know: they come again as the same ones."""
    cluster.start("worker")
    with cluster.redis() as server:
        sender = eventually(lambda: str(server.get("{p00}:sender") or ""), within=LATE)
    number = cluster.stack.pids("worker").index(int(sender.strip("'").rpartition("/")[2]))
    receiver.on_body = lambda: cluster.kill("worker", number)
    run_id = cluster.submit("echo")
    cluster.ended(run_id)
    eventually(lambda: receiver.check()["again"], within=LATE)
    assert len(receiver.of(run_id)) == 2
