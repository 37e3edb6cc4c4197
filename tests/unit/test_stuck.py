"""When a run counts as stuck, and what is said about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from palaver.errors import ErrorClass
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.stuck_limits import MAX_TURNS, StuckLimits
from palaver.steps.retry import stop_reason
from palaver.steps.stuck import Nudge, Stuck, Turn, find_repetition

LIMITS = StuckLimits()


def turn(name: str = "search", arguments: str = "{}", result: str = "nothing", *, failed: bool = False) -> Turn:
    call = ToolCall(id="c1", name=name, arguments=arguments)
    return Turn.of([call], {"c1": Message(role="tool", call_id="c1", name=name, content=result, is_error=failed)})


def judged(*turns: Turn, limits: StuckLimits | None = LIMITS, nudged: bool = False) -> Nudge | Stuck | None:
    return find_repetition(turns, limits, nudged=nudged)


SAME, FAILS = turn(), turn(failed=True)
A, B, C = turn("a"), turn("b"), turn("c")


@pytest.mark.parametrize(
    ("turns", "code"),
    [
        ([], None),
        ([SAME] * 3, None),
        ([SAME] * 4, "same_result"),
        ([A, *[SAME] * 4], "same_result"),
        ([*[SAME] * 4, A], None),
        ([SAME, SAME, A, SAME, SAME], None),
        ([FAILS] * 4, "same_error"),
        ([FAILS] * 2, None),
        ([FAILS, FAILS, SAME, FAILS], None),
        ([turn(result=str(i)) for i in range(20)], None),
        ([turn(arguments=f'{{"page": {i}}}') for i in range(20)], None),
        ([A, B, A, B, A], None),
        ([A, B, A, B, A, B], "alternation"),
        ([C, A, B, A, B, A, B], "alternation"),
        ([A, B, A, B, A, C], None),
        ([A, B, C, A, B, C], None),
    ],
)
def test_the_rules(turns: list[Turn], code: str | None) -> None:
    found = judged(*turns, nudged=True)
    assert (found.code if isinstance(found, Stuck) else found) == code


def test_the_model_is_told_once_before_a_run_that_fails_the_same_way_is_given_up() -> None:
    assert judged(FAILS, FAILS) is None
    nudge = judged(FAILS, FAILS, FAILS)
    assert isinstance(nudge, Nudge)
    assert "search failed 3 times" in nudge.text
    assert judged(FAILS, FAILS, FAILS, nudged=True) is None
    assert isinstance(judged(FAILS, FAILS, FAILS, FAILS, nudged=True), Stuck)


def test_no_order_and_no_spelling_hides_a_repetition() -> None:
    assert turn(arguments='{"a": 1, "b": [2]}') == turn(arguments='{ "b":[2],"a":1 }')
    calls = [ToolCall(id="1", name="x"), ToolCall(id="2", name="y")]
    results = {i: Message(role="tool", call_id=i, content=i) for i in "12"}
    assert Turn.of(calls, results) == Turn.of(calls[::-1], results)


@pytest.mark.parametrize(
    "other",
    [turn("find"), turn(arguments='{"a": 1}'), turn(arguments="{oops"), turn(result="something"), FAILS],
)
def test_what_makes_a_difference(other: Turn) -> None:
    assert other.digest != SAME.digest


def test_a_call_among_others_that_fails_is_named() -> None:
    calls = [ToolCall(id="1", name="works"), ToolCall(id="2", name="breaks")]
    results = {i: Message(role="tool", call_id=i, is_error=i == "2") for i in "12"}
    found = judged(*[Turn.of(calls, results)] * 4)
    assert isinstance(found, Stuck)
    assert found.evidence == "breaks failed 4 times in a row with the same arguments and the same error."


def test_the_error_has_counts_and_names_and_no_content() -> None:
    secret = turn("no such tool, but my secret is 4711", '{"password": "4711"}', "4711")
    found = judged(*[secret] * 4)
    assert isinstance(found, Stuck)
    failure = found.failure
    assert (failure.error_class, failure.code, failure.user_action) == (ErrorClass.STUCK, "same_result", "fix_input")
    assert stop_reason(failure) == "stuck"
    assert "4711" not in failure.message
    assert "an unknown tool was called 4 times" in failure.message


@pytest.mark.parametrize("off", [0, None])
def test_each_limit_can_be_switched_off(off: int | None) -> None:
    limits = StuckLimits(same_result=off, same_error=off, nudge_after=off, alternation=off)
    for turns in ([SAME] * 50, [FAILS] * 50, [A, B] * 25):
        assert judged(*turns, limits=limits) is None
        assert judged(*turns, limits=None) is None


@given(st.integers(2, MAX_TURNS), st.integers(1, MAX_TURNS))
def test_thresholds_are_the_agents(limit: int, length: int) -> None:
    limits = StuckLimits(same_result=limit, same_error=limit, nudge_after=0, alternation=limit)
    assert isinstance(judged(*[SAME] * length, limits=limits), Stuck) == (length >= limit)
    assert isinstance(judged(*[FAILS] * length, limits=limits), Stuck) == (length >= limit)
    assert isinstance(judged(*([A, B] * length)[:length], limits=limits), Stuck) == (length >= limit)


@pytest.mark.parametrize("wrong", ['{"same_result": 1}', '{"alternation": 101}', '{"nudge": 2}', '{"same_error": "4"}'])
def test_a_limit_that_makes_no_sense_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError):
        AgentSpec.model_validate_json(f'{{"model": "a/b", "stuck": {wrong}}}')
    assert AgentSpec.model_validate_json('{"model": "a/b", "stuck": null}').stuck is None
