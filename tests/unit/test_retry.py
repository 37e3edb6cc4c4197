"""A policy's verdicts: when a step is tried again, how long it waits, and when it is given up."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import (
    ConfigurationError,
    ErrorClass,
    Failure,
    MalformedResponse,
    RetryableToolError,
    ToolError,
    classify,
)
from palaver.errors.failure import MAX_MESSAGE
from palaver.steps.retry import MODEL_CALL, SPREAD, TOOL_CALL, RetryPolicy, Rule, stop_reason
from palaver.steps.verdicts import GiveUp, Postpone, RetryAfter
from palaver.vocabulary.lifecycle import StopReason

RETRIED = {"rate_limited": 8, "provider_error": 5, "connection": 5, "timeout": 5, "storage": 10}


def policy(**fields: Any) -> RetryPolicy:
    return RetryPolicy({ErrorClass.TIMEOUT: Rule(**fields)})


def late(retry_after: float | None = None) -> Failure:
    return Failure.of(ErrorClass.TIMEOUT, retry_after=retry_after)


def delay(verdict: RetryAfter | GiveUp) -> float:
    assert isinstance(verdict, RetryAfter)
    return verdict.delay


@pytest.mark.parametrize("error_class", ErrorClass)
def test_a_model_call_retries_these_classes_so_often(error_class: ErrorClass) -> None:
    failure = Failure.of(error_class)
    attempts = 1
    while isinstance(MODEL_CALL.decide(failure, attempts, 0), RetryAfter):
        attempts += 1
    assert attempts == RETRIED.get(error_class.value, 1)


@pytest.mark.parametrize("error_class", ErrorClass)
def test_a_tool_call_retries_only_the_store(error_class: ErrorClass) -> None:
    retried = isinstance(TOOL_CALL.decide(Failure.of(error_class), 1, 0), RetryAfter)
    assert retried == (error_class is ErrorClass.STORAGE)


def test_a_tool_may_ask_to_be_tried_again_at_a_time() -> None:
    again = classify(RetryableToolError("busy", retry_after=7), source="tool")
    assert 7 <= delay(TOOL_CALL.decide(again, 1, 0)) <= 7.7
    given_up = TOOL_CALL.decide(again, 3, 0)
    assert isinstance(given_up, GiveUp)
    assert given_up.failure.recoverable
    assert isinstance(TOOL_CALL.decide(classify(ToolError("no")), 1, 0), GiveUp)


@pytest.mark.parametrize(
    ("jitter", "drawn", "delays"),
    [
        ("none", 0.5, [1, 3, 9, 10, 10]),
        ("full", 0.5, [0.5, 1.5, 4.5, 5, 5]),
        ("full", 0.0, [0, 0, 0, 0, 0]),
        ("equal", 0.0, [0.5, 1.5, 4.5, 5, 5]),
        ("equal", 0.5, [0.75, 2.25, 6.75, 7.5, 7.5]),
    ],
)
def test_back_off_grows_to_its_limit(jitter: str, drawn: float, delays: list[float]) -> None:
    judged = policy(attempts=9, first=1, factor=3, max_delay=10, jitter=jitter)
    assert [delay(judged.decide(late(), n, 0, random=lambda: drawn)) for n in range(1, 6)] == delays


def test_a_back_off_beyond_floats_is_the_longest() -> None:
    assert Rule(attempts=100, first=1, factor=100, max_delay=5, jitter="none").backoff(10_000) == 5


def test_the_wait_asked_for_is_a_floor_spread_upwards() -> None:
    judged = policy(first=1, jitter="none", retry_after_cap=300)
    assert delay(judged.decide(late(20), 1, 0, random=lambda: 0.0)) == 20
    assert delay(judged.decide(late(20), 1, 0, random=lambda: 0.5)) == pytest.approx(21)
    assert delay(judged.decide(late(0), 1, 0, random=lambda: 0.5)) == 1


def test_a_wait_beyond_the_cap_is_given_up_and_says_so() -> None:
    verdict = policy(retry_after_cap=300).decide(late(301), 1, 0)
    assert isinstance(verdict, GiveUp)
    assert verdict.failure.message.endswith("Gave up: it asks to wait 301 s, the policy allows 300 s.")
    assert verdict.failure.user_action == "wait"
    assert delay(policy(retry_after_cap=300).decide(late(300), 1, 0)) >= 300


def test_attempts_and_time_run_out_and_say_so() -> None:
    verdict = policy(attempts=1).decide(late(), 1, 0)
    assert isinstance(verdict, GiveUp)
    assert verdict.failure.message.endswith("Gave up after 1 attempt.")
    short = RetryPolicy({ErrorClass.TIMEOUT: Rule(first=5, jitter="none")}, timedelta(seconds=10))
    assert delay(short.decide(late(), 1, 5)) == 5
    verdict = short.decide(late(), 1, 5.1)
    assert isinstance(verdict, GiveUp)
    assert verdict.failure.message.endswith("Gave up: the policy allows 10 s for all attempts.")


def test_an_answer_that_cannot_be_read_is_asked_for_twice_at_most_whatever_the_rule_says() -> None:
    failure = classify(MalformedResponse("an event of the stream is no JSON"), source="model")
    policy = RetryPolicy({ErrorClass.PROVIDER_ERROR: Rule(attempts=9)})
    first = policy.decide(failure, 1, 0.0)
    assert isinstance(first, RetryAfter)
    assert first.attempts == 2
    last = policy.decide(failure, 2, 0.0)
    assert isinstance(last, GiveUp)
    assert last.failure.message.endswith("Gave up after 2 attempts.")
    assert isinstance(RetryPolicy({ErrorClass.PROVIDER_ERROR: Rule(attempts=1)}).decide(failure, 1, 0.0), GiveUp)


def test_a_note_is_never_cut_off() -> None:
    noted = Failure.of(ErrorClass.TIMEOUT, "x " * 600).noting("Gave up.")
    assert len(noted.message) <= MAX_MESSAGE
    assert noted.message.endswith("… Gave up.")


@pytest.mark.parametrize("said", ["It stalled", "It stalled."])
def test_a_note_is_a_sentence_of_its_own(said: str) -> None:
    assert Failure.of(ErrorClass.TIMEOUT, said).noting("Gave up.").message == "It stalled. Gave up."


@pytest.mark.parametrize("error_class", ErrorClass)
def test_a_failure_that_ends_a_run_has_one_stop_reason(error_class: ErrorClass) -> None:
    special = {"content_filter", "budget", "max_steps", "deadline", "stuck"}
    expected = StopReason(error_class.value) if error_class.value in special else StopReason.ERROR
    assert stop_reason(Failure.of(error_class)) is expected


def test_what_is_not_retryable_is_given_up_as_it_is() -> None:
    failure = Failure.of(ErrorClass.STORAGE, retryable=False)
    assert MODEL_CALL.decide(failure, 1, 0) == GiveUp(failure, StopReason.ERROR)


rules = st.builds(
    Rule,
    attempts=st.integers(1, 100),
    first=st.floats(0, 100),
    factor=st.floats(1, 100),
    max_delay=st.floats(100, 86_400),
    jitter=st.sampled_from(["full", "equal", "none"]),
    retry_after_cap=st.floats(0, 86_400),
)
draws = st.floats(0, 1, exclude_max=True)
waits = st.none() | st.floats(0, 1e12)


@given(rules, waits, st.integers(0, 10_000), st.floats(0, 1e6), draws)
def test_a_delay_is_never_too_short_nor_too_long(
    rule: Rule, asked: float | None, attempt: int, elapsed: float, drawn: float
) -> None:
    judged = RetryPolicy({ErrorClass.TIMEOUT: rule}, timedelta(days=1))
    verdict = judged.decide(late(asked), attempt, elapsed, random=lambda: drawn)
    if isinstance(verdict, GiveUp):
        return
    assert attempt < rule.attempts
    assert (asked or 0) <= verdict.delay
    assert verdict.delay <= max(rule.max_delay, rule.retry_after_cap * (1 + SPREAD))
    assert elapsed + verdict.delay <= 86_400


@given(st.dictionaries(st.sampled_from(list(ErrorClass)), rules), st.timedeltas(timedelta(), timedelta(days=1)))
def test_a_policy_survives_json(chosen: dict[ErrorClass, Rule], elapsed: timedelta) -> None:
    built = RetryPolicy(chosen, elapsed)
    assert RetryPolicy.parse(json.loads(json.dumps(built.dump()))) == built


names = st.sampled_from(["rules", "max_elapsed", "timeout", "storage", "attempts", "first", "jitter", "then"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["full", "fail", ""])


@given(st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=8))
def test_every_value_is_a_policy_or_told_what_is_wrong(value: object) -> None:
    try:
        parsed = RetryPolicy.parse(value)
    except ConfigurationError:
        return
    assert RetryPolicy.parse(parsed.dump()) == parsed


def test_what_is_not_given_has_its_default() -> None:
    parsed = RetryPolicy.parse({"rules": {"timeout": {"attempts": 2}}})
    assert parsed == RetryPolicy({ErrorClass.TIMEOUT: Rule(attempts=2)}, timedelta(minutes=30))
    assert RetryPolicy.parse({}) == RetryPolicy()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"rule": {}}, "/rule: no such name: 'rule'; did you mean rules?"),
        (
            {"rules": {"rate_limit": {}}},
            "/rules/rate_limit: no such name: 'rate_limit'; did you mean rate_limited?",
        ),
        (
            {"rules": {"timeout": {"atempts": 1}}},
            "/rules/timeout/atempts: no such name: 'atempts'; did you mean attempts?",
        ),
        (
            {"rules": {"timeout": {"jitter": "ful"}}},
            "/rules/timeout/jitter: no such name: 'ful'; did you mean full?",
        ),
        (
            {"rules": {"timeout": {"then": "42"}}},
            "/rules/timeout/then: no such name: '42'; known: fail, fallback_model",
        ),
        (
            {"rules": {"timeout": {"attempts": 0}}},
            "/rules/timeout/attempts: must be a number from 1 to 100, not 0",
        ),
        (
            {"rules": {"timeout": {"attempts": 1.5}}},
            "/rules/timeout/attempts: must be a whole number, not 1.5",
        ),
        (
            {"rules": {"timeout": {"attempts": True}}},
            "/rules/timeout/attempts: must be a number from 1 to 100, not True",
        ),
        (
            {"rules": {"timeout": {"first": float("nan")}}},
            "/rules/timeout/first: must be a number from 0 to 86400, not nan",
        ),
        (
            {"rules": {"timeout": {"first": 60}}},
            "/rules/timeout/max_delay: must be a number from 60 to 86400, not 30.0",
        ),
        ({"rules": {"timeout": 3}}, "/rules/timeout: must be a table of fields, not 3"),
        ({"rules": []}, "/rules: must be a table of fields, not []"),
        ({"max_elapsed": "1h"}, "/max_elapsed: must be a number from 0 to 86400, not '1h'"),
        ("fast", "must be a table of fields, not 'fast'"),
    ],
    ids=str,
)
def test_a_wrong_policy_is_told_what_is_wrong(value: object, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RetryPolicy.parse(value)
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("patience", "waited", "other_model", "waits"),
    [
        (600, 0, False, 30),
        (600, 580, False, 20),
        (600, 600, False, None),
        (600, 45, True, 15),
        (600, 60, True, None),
        (0, 0, False, None),
        (86_400, 86_000, False, 30),
    ],
)
def test_the_end_of_an_outage_is_waited_for_with_patience(
    patience: float, waited: float, other_model: bool, waits: float | None
) -> None:
    policy = RetryPolicy.parse({"patience": patience}).over(MODEL_CALL)
    failure = Failure.of(ErrorClass.CONNECTION, code="connect_refused")
    verdict = policy.outlast(failure, 30, waited, other_model=other_model)
    if waits is not None:
        assert verdict == Postpone(waits, "outage", failure=failure)
        return
    assert isinstance(verdict, GiveUp)
    allowed = patience / 10 if other_model else patience
    ends = f"Gave up: waited {waited} s for the outage to end, the policy allows {allowed:g} s."
    assert verdict.failure.message.endswith(ends)
    assert (verdict.failure.error_class, verdict.failure.user_action) == (ErrorClass.CONNECTION, "wait")


def test_a_policy_that_older_code_must_read_says_nothing_new() -> None:
    assert set(MODEL_CALL.dump()) == {"max_elapsed", "rules"}
    assert RetryPolicy.parse(RetryPolicy.parse({"patience": 5}).dump()).patience.total_seconds() == 5


def test_a_policy_goes_before_another_class_by_class() -> None:
    mine = RetryPolicy.parse({"max_elapsed": 5, "rules": {"timeout": {"attempts": 1, "then": "fallback_model"}}})
    both = mine.over(MODEL_CALL)
    assert both.rules[ErrorClass.TIMEOUT].attempts == 1
    assert both.rules[ErrorClass.RATE_LIMITED] == MODEL_CALL.rules[ErrorClass.RATE_LIMITED]
    assert both.max_elapsed.total_seconds() == 5
    assert both.falls_back(Failure.of(ErrorClass.TIMEOUT))
    assert not both.falls_back(Failure.of(ErrorClass.CONNECTION))
    assert not both.falls_back(Failure.of(ErrorClass.INTERNAL))
