"""What a worker saw, in memory that its children share with it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from palaver.errors import ErrorClass, Failure
from palaver.schemas.models import AgentSpec, Message, ToolCall, Usage
from palaver.steps.leases import Lease, LogTail, Settled
from palaver.steps.verdicts import Continue, Finish, GiveUp, HandBack, Postpone, RetryAfter, ToolOutcome, Verdict
from palaver.telemetry.metrics import StepOutcome
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import MODEL, TOOL, StepKind
from workers.steps.active_step import ActiveStep
from workers.steps.histograms import Histograms, outcome_of

CALL = ToolCall(id="c1", name="send", arguments="{}")
FAILURE = Failure.of(ErrorClass.TOOL_ERROR)


def _lease(call: ToolCall | None = None, waited: float = 0.0) -> Lease:
    return Lease(
        run_id="run_00x",
        conversation_id="conv_00x",
        kind=TOOL if call else MODEL,
        step="1",
        fence=1,
        attempt=1,
        try_number=1,
        elapsed=0.0,
        time_left=1.0,
        agent=AgentSpec(model="fake/echo"),
        call=call,
        log=LogTail(),
        waited=waited,
    )


def _active(lasting: float, cancelled: float | None = None) -> ActiveStep:
    active, now = ActiveStep("run_00x", "1"), time.monotonic()
    active.began_at = now - lasting
    active.cancelled_at = None if cancelled is None else now - cancelled
    return active


def _settled(status: str = "running") -> Settled:
    return Settled(status, (), None)


def _samples(histograms: Histograms) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(histograms.exposed())
    return {(each.name, tuple(each.labels.items())): each.value for family in families for each in family.samples}


def test_what_was_seen_is_in_its_bucket() -> None:
    histograms = Histograms(MODEL)
    for seconds in (15.0, 100.0, 5000.0):
        active = _active(lasting=seconds)
        histograms.settled(_lease(waited=0.02), Finish(None, StopReason.END_TURN), _settled("completed"), active)
    found = _samples(histograms)
    labels = (("kind", "model"), ("outcome", "done"))
    name = "palaver_step_duration_seconds"
    buckets = {edge: found[f"{name}_bucket", (*labels, ("le", edge))] for edge in ("10", "30", "300", "+Inf")}
    assert (buckets["10"], buckets["30"], buckets["300"], buckets["+Inf"]) == (0, 1, 2, 3)
    assert found[f"{name}_count", labels] == 3
    assert found[f"{name}_sum", labels] == pytest.approx(5115.0, abs=5)
    assert found["palaver_claim_wait_seconds_sum", ()] == pytest.approx(0.06)


@pytest.mark.parametrize("kind", [MODEL, TOOL])
def test_what_may_be_seen_is_there_before_it_is(kind: StepKind) -> None:
    before, step = _samples(Histograms(kind)), "palaver_step_duration_seconds"
    outcomes = {*get_args(StepOutcome)} - {"lost"}
    assert {labels for name, labels in before if name == f"{step}_count"} == {
        (("kind", kind.name), ("outcome", outcome)) for outcome in outcomes
    }
    assert ("palaver_claim_wait_seconds_count", ()) in before
    assert {*before.values()} == {0}


@pytest.mark.slow
def test_models_have_series_of_their_own_until_there_are_many() -> None:
    histograms = Histograms(MODEL)
    for number in range(limit_of("metric_models") + 5):
        histograms.model_call("fake", f"m{number}", 0.5, 0.1, Usage(input_tokens=100, output_tokens=5))
    found = _samples(histograms)
    calls = {
        dict(labels)["model"]: value
        for (name, labels), value in found.items()
        if name == "gen_ai_client_operation_duration_seconds_count"
    }
    assert len(calls) == limit_of("metric_models") + 1
    assert (calls["m0"], calls["other"]) == (1, 5)
    tokens = {dict(labels)["type"] for name, labels in found if name == "gen_ai_client_token_usage_count"}
    assert tokens == {"input", "output"}
    assert found["palaver_time_to_first_token_seconds_count", (("provider", "fake"),)] == limit_of("metric_models") + 5


def test_what_a_killed_child_saw_stays() -> None:
    histograms = Histograms(TOOL, places=3)
    for place in (1, 2):
        child = os.fork()
        if not child:
            histograms.move_to(place)
            histograms.settled(_lease(CALL), Continue(), _settled(), _active(0.02, cancelled=20.0))
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
    found = _samples(histograms)
    assert found["palaver_step_duration_seconds_count", (("kind", "tool"), ("outcome", "done"))] == 2
    assert found["palaver_cancel_stop_seconds_sum", ()] == pytest.approx(40.0, abs=10)


def test_a_child_beyond_its_places_writes_nowhere() -> None:
    histograms = Histograms(TOOL, places=1)
    before = histograms.exposed()
    histograms.move_to(1)
    histograms.settled(_lease(CALL), Continue(), _settled(), _active(0.02))
    assert histograms.exposed() == before


def test_a_worker_that_nobody_asks_keeps_nothing() -> None:
    histograms = Histograms(MODEL, places=0)
    before = histograms.exposed()
    histograms.settled(_lease(), Continue(), _settled(), _active(0.02))
    histograms.model_call("fake", "echo", 0.5, 0.1, Usage(input_tokens=100))
    assert histograms.exposed() == before


@pytest.mark.parametrize(
    ("verdict", "status", "expected"),
    [
        (Finish(None, StopReason.END_TURN), RunStatus.COMPLETED, "done"),
        (Finish(None, StopReason.CANCELLED), RunStatus.CANCELLED, "abandoned"),
        (RetryAfter(1.0, FAILURE), RunStatus.RUNNING, "retried"),
        (RetryAfter(1.0, FAILURE), RunStatus.INCOMPLETE, "failed"),
        (GiveUp(FAILURE, StopReason.ERROR), RunStatus.RUNNING, "failed"),
        (Postpone(1.0, "cooldown"), RunStatus.RUNNING, "postponed"),
        (HandBack(True), RunStatus.RUNNING, "handed_back"),
        (Continue(outcomes=(ToolOutcome.failed(CALL, FAILURE),)), RunStatus.RUNNING, "failed"),
        (Continue(outcomes=(ToolOutcome(Message(role="tool", call_id="c1")),)), RunStatus.RUNNING, "done"),
    ],
)
def test_outcomes_have_the_names_that_steps_are_counted_by(
    verdict: Verdict, status: RunStatus, expected: StepOutcome
) -> None:
    assert outcome_of(_lease(CALL), verdict, _settled(status)) == expected


def test_a_model_step_with_an_inline_tool_that_failed_is_done() -> None:
    told: Any = Continue(Message(role="assistant"), (ToolOutcome.failed(CALL, FAILURE),))
    assert outcome_of(_lease(), told, _settled()) == "done"
