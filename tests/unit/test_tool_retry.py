"""Whether a failed call of a tool is tried again."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.cli.doing import wait_cause
from palaver.config.providers import Limits
from palaver.errors import ConfigurationError, ErrorClass, Failure, RetryableToolError, ToolError
from palaver.errors.finding import ToolFinding
from palaver.errors.vocabulary import TOOL_CLASSES
from palaver.steps.retry import TOOL_CALL, RetryPolicy, Rule
from palaver.steps.tool_retry import SERVICE_CALL, ToolPolicy
from palaver.steps.verdicts import GiveUp, RetryAfter
from palaver.tools import Tool, ToolSet, tool
from palaver.tools.declared import declarations_in
from workers.sources.containment import failed
from workers.sources.functions import Functions
from workers.sources.toolbox import Toolbox

DEFAULTS = {"rate_limited": 5, "provider_error": 4, "connection": 4, "timeout": 4}


def finding(error_class: str, *, sent: bool, retryable: bool = False) -> ToolFinding:
    return ToolFinding(Failure.of(ErrorClass(error_class), source="tool", retryable=retryable), sent=sent)


def attempts(policy: ToolPolicy, failed_with: ToolFinding) -> int:
    """So many calls are made that all fail so."""
    attempt = 1
    while isinstance(policy.decide(failed_with, attempt, 0), RetryAfter):
        attempt += 1
    return attempt


@pytest.mark.parametrize("error_class", TOOL_CLASSES)
@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("own", [None, RetryPolicy(), RetryPolicy({ErrorClass.TIMEOUT: Rule(attempts=2)})])
def test_every_class_by_what_was_taken_and_what_is_declared(
    error_class: str, sent: bool, idempotent: bool, own: RetryPolicy | None
) -> None:
    expected = 1
    if (own is not None and not sent) or idempotent:
        expected = DEFAULTS.get(error_class, 1)
    if own is not None and own.rules and error_class == "timeout":
        expected = 2
    assert attempts(ToolPolicy(TOOL_CALL, idempotent, own), finding(error_class, sent=sent)) == expected


def test_a_tool_that_asks_is_tried_three_times_whatever_it_declares() -> None:
    asks = finding("tool_error", sent=False, retryable=True)
    assert attempts(ToolPolicy(TOOL_CALL, False), asks) == attempts(ToolPolicy(TOOL_CALL, True), asks) == 3
    assert attempts(ToolPolicy(TOOL_CALL, False, RetryPolicy({ErrorClass.TOOL_ERROR: Rule(attempts=7)})), asks) == 7


def test_a_class_that_is_named_is_retried_also_if_it_is_not_by_default() -> None:
    named = RetryPolicy({ErrorClass.NOT_FOUND: Rule(attempts=3), ErrorClass.TOOL_TIMEOUT: Rule(attempts=2)})
    assert attempts(ToolPolicy(TOOL_CALL, False, named), finding("not_found", sent=True)) == 3
    assert attempts(ToolPolicy(TOOL_CALL, False, named), finding("tool_timeout", sent=True)) == 2


@pytest.mark.parametrize(
    ("policy", "sent", "says"),
    [
        (ToolPolicy(TOOL_CALL, False), True, None),
        (ToolPolicy(TOOL_CALL, False), False, None),
        (ToolPolicy(TOOL_CALL, False, RetryPolicy()), True, "It may or may not have taken effect."),
        (ToolPolicy(TOOL_CALL, False, RetryPolicy()), False, "The service has not taken the call."),
        # An attempt before this one may have been taken.
        (ToolPolicy(TOOL_CALL, True), False, "It may or may not have taken effect."),
        (
            ToolPolicy(TOOL_CALL, False, RetryPolicy({ErrorClass.TIMEOUT: Rule()})),
            False,
            "It may or may not have taken effect.",
        ),
    ],
)
def test_what_the_model_reads_of_its_effects(policy: ToolPolicy, sent: bool, says: str | None) -> None:
    given_up = policy.decide(finding("connection", sent=sent), 99, 0)
    assert isinstance(given_up, GiveUp)
    message = given_up.failure.message
    assert message.endswith(says) if says else "effect" not in message and "taken" not in message


def refused() -> httpx.ConnectError:
    error = httpx.ConnectError("no")
    error.__cause__ = ConnectionRefusedError(111, "no")
    return error


def status(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://crm")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(code))


NOT_TAKEN = (refused, lambda: status(429), lambda: status(503), lambda: httpx.PoolTimeout("no"))
TAKEN = (
    lambda: httpx.ReadTimeout("no"),
    lambda: httpx.ReadError("no"),
    lambda: status(500),
    lambda: status(502),
    lambda: ConnectionResetError(104, "no"),
    TimeoutError,
    lambda: ValueError("its answer was no JSON"),
)
REQUESTS = st.one_of(
    st.just(("taken", None)),
    st.sampled_from(NOT_TAKEN).map(lambda make: ("refused", make)),
    st.sampled_from(TAKEN).map(lambda make: ("taken", make)),
)


def sends(program: list[tuple[str, Any]], policy: ToolPolicy, *, most: int) -> dict[int, int]:
    """How often each request of a tool is sent that makes several, the outcomes of which come one after the other."""
    outcomes, taken = iter(program), dict.fromkeys(range(most), 0)
    declaration = crm_tool().declaration
    attempt = 1
    while True:
        error: Exception | None = None
        for number in range(most):
            effect, make = next(outcomes, ("taken", None))
            taken[number] += effect == "taken"
            if make is not None:
                error = make()
                break
        if error is None:
            return taken
        its = failed(declaration, error).finding
        assert its is not None
        if isinstance(policy.decide(its, attempt, 0), GiveUp):
            return taken
        attempt += 1


def crm_tool() -> Tool:
    @tool
    def crm() -> None: ...

    return crm


@given(st.lists(REQUESTS, max_size=12), st.integers(1, 4))
def test_without_a_policy_nothing_that_was_sent_is_sent_twice(program: list[tuple[str, Any]], most: int) -> None:
    """However many requests a call makes."""
    assert max(sends(program, ToolPolicy(TOOL_CALL, idempotent=False), most=most).values()) <= 1


@given(st.lists(REQUESTS, max_size=12))
def test_with_the_default_policy_a_single_request_is_taken_once_at_most(program: list[tuple[str, Any]]) -> None:
    assert max(sends(program, ToolPolicy(TOOL_CALL, idempotent=False, own=RetryPolicy()), most=1).values()) <= 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retry": 3}, "retry: a RetryPolicy, not 3: retry=RetryPolicy"),
        ({"retry": {"attempts": 3}}, "retry: a RetryPolicy"),
        ({"retry": RetryPolicy({ErrorClass.STUCK: Rule()})}, "no call of a tool fails with stuck; there are: rate_lim"),
        ({"retry": RetryPolicy({ErrorClass.TIMEOUT: Rule(then="fallback_model")})}, "a tool has no fallback model"),
        ({"errors": [ValueError]}, "errors: a mapping such as"),
        ({"errors": {"ValueError": ErrorClass.TIMEOUT}}, "errors: 'ValueError' is no class of exceptions"),
        ({"errors": {ValueError: ErrorClass.INTERNAL}}, "errors: ValueError: a call fails with one of rate_limited"),
        ({"errors": {ValueError: "timout"}}, "errors: ValueError: a call fails with one of rate_limited"),
        ({"limit_key": "a/b"}, "limit_key: 1 to 64 letters"),
        ({"limit_key": 3}, "limit_key: 1 to 64 letters"),
        ({"max_in_flight": 0}, "max_in_flight: a whole number from 1"),
        ({"per_minute": 1.5}, "per_minute: a whole number from 1"),
        ({"per_minute": True}, "per_minute: a whole number from 1"),
        ({"inline": True, "retry": RetryPolicy()}, "an inline tool is called within a step of the model, once"),
        ({"inline": True, "limit_key": "crm"}, "an inline tool is called within a step of the model, once"),
        ({"retries": 3}, "@tool has no option retries; did you mean 'retry'"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says.replace("(", r"\(")):
        tool(**options)(refused)


def test_a_declaration_shows_it_and_has_no_more_than_before_without() -> None:
    @tool(
        retry=RetryPolicy({ErrorClass.TIMEOUT: Rule(attempts=2)}), errors={KeyError: ErrorClass.TIMEOUT}, per_minute=9
    )
    def crm() -> None: ...

    @tool
    def plain() -> None: ...

    shown = ToolSet.of([crm.declaration, plain.declaration])
    its, none = declarations_in(shown.text)
    assert its.retry == RetryPolicy({ErrorClass.TIMEOUT: Rule(attempts=2)}).dump()
    assert (its.limit_key, its.per_minute, its.errors) == ("crm", 9, {})
    assert crm.declaration.errors == {KeyError: ErrorClass.TIMEOUT}
    assert none == plain.declaration
    assert b"limit_key" not in ToolSet.of([plain.declaration]).text
    newer = shown.text.replace(b'"per_minute":9', b'"per_minute":9,"per_hour":1')
    assert declarations_in(newer)[0] == its


def test_limits_for_tools_that_an_older_version_stored_are_ignored() -> None:
    stored = RetryPolicy.parse({"patience": 5, "tools": {"attempts": 2, "patience": 5}}, stored=True)
    assert stored == RetryPolicy.parse({"patience": 5})
    assert "tools" not in stored.dump()


def test_the_tools_own_word_is_its_failure() -> None:
    for error in (ToolError("no"), RetryableToolError("no", retry_after=2)):
        made = failed(crm_tool().declaration, error)
        assert (type(made), str(made)) == (type(error), "no")
    assert SERVICE_CALL.rules.keys() <= TOOL_CLASSES.keys()


def test_tools_of_one_service_agree_on_its_limits() -> None:
    async def crm() -> None: ...

    def declared(name: str, **options: Any) -> Tool:
        return tool(name=name, limit_key="crm", **options)(crm)

    agree = Toolbox(
        [Functions([declared("one", max_in_flight=2), declared("two"), declared("three", max_in_flight=2)])]
    )
    assert agree.services == {"crm": Limits(max_in_flight=2)}
    assert Toolbox([Functions([crm_tool()])]).services == {}
    with pytest.raises(ConfigurationError, match="the tools 'one' and 'two' declare different limits for 'crm'"):
        Toolbox([Functions([declared("one", max_in_flight=2), declared("two", per_minute=2)])])


def test_people_read_which_service_is_waited_for() -> None:
    assert wait_cause("service_cooldown", "crm:max_in_flight") == (
        "the tools' service crm: as many calls as it may have are under way"
    )
    assert wait_cause("service_cooldown", "crm:later") == "the tools' service crm: later"
