"""Retry policies: whether a failed step is tried again, and when. Pure: no clock, no sleep, no queue.

A policy has one rule for each error class that is retried. A failure of a class without a rule is not retried. The
delay that a rule computes is never slept: it goes into the due index.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, field, fields, replace
from datetime import timedelta
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, Literal, Self, get_args

from palaver.errors.exceptions import ConfigurationError
from palaver.errors.failure import Failure
from palaver.errors.vocabulary import ErrorClass
from palaver.late import dataclass
from palaver.steps.verdicts import GiveUp, Postpone, RetryAfter
from palaver.vocabulary.lifecycle import StopReason

Jitter = Literal["full", "equal", "none"]
"""The way a back-off is randomised: over its full length, over its upper half, or not at all."""
Then = Literal["fail", "fallback_model"]
"""The next move when a rule gives up: the run fails, or the step starts again with the run's next model."""

SPREAD: Final = 0.1
"""A wait that a provider asked for is lengthened by up to this share, so that not all callers return at once. It is
never shortened: an early caller would be refused again."""
FALLBACK_AFTER: Final = 0.1
"""The share of its patience that a step waits for its own model if it may go on with another one: a minute by default,
which is longer than a restart."""

MAX_ATTEMPTS: Final = 100
MAX_SECONDS: Final = 86_400.0
"""Upper bounds of the values in a policy. Clients send policies with their runs, and every run must end."""

_AT_MOST: Final = {"bad_model_response": 2}
"""Attempts of a step whose failure is most likely the same each time, whatever the rule of its class says, by the code:
an answer that cannot be read comes from the same bytes, and each is paid in full."""
_STOP_REASONS: Final[Mapping[ErrorClass, StopReason]] = {
    ErrorClass.CONTENT_FILTER: StopReason.CONTENT_FILTER,
    ErrorClass.STUCK: StopReason.STUCK,
}


def stop_reason(failure: Failure) -> StopReason:
    """The stop reason of a run that ends with this failure."""
    return _STOP_REASONS.get(failure.error_class, StopReason.ERROR)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for retries of the failures of one class. Times are in seconds.

    Raises ConfigurationError for a value of the wrong type or out of bounds.
    """

    attempts: int = 5
    """The number of attempts of a step, including the first one."""
    first: float = 0.5
    """The back-off after the first attempt, before jitter."""
    factor: float = 2.0
    """The factor by which each back-off is longer than the one before."""
    max_delay: float = 30.0
    """The longest back-off."""
    jitter: Jitter = "full"
    retry_after_cap: float = 300.0
    """The longest wait that a provider may ask for; if it asks for more, the rule gives up."""
    then: Then = "fail"

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int):
            raise ConfigurationError(f"must be a whole number, not {self.attempts!r:.40}", pointer="/attempts")
        _within("attempts", self.attempts, 1, MAX_ATTEMPTS)
        _within("first", self.first, 0, MAX_SECONDS)
        _within("factor", self.factor, 1, 100)
        _within("max_delay", self.max_delay, self.first, MAX_SECONDS)
        _within("retry_after_cap", self.retry_after_cap, 0, MAX_SECONDS)
        _known("jitter", self.jitter, get_args(Jitter))
        _known("then", self.then, get_args(Then))

    def backoff(self, attempt: int, random: Callable[[], float] = _random.random) -> float:
        """Seconds to wait after attempt number ``attempt``, jitter included."""
        try:
            longest = min(self.first * self.factor ** max(attempt - 1, 0), self.max_delay)
        except OverflowError:
            longest = self.max_delay
        match self.jitter:
            case "full":
                return longest * random()
            case "equal":
                return longest * (1 + random()) / 2
            case "none":
                return longest


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The rules of a kind of step, and how long its retries may take in all.

    Raises ConfigurationError for a ``max_elapsed`` or a ``patience`` out of bounds.
    """

    rules: Mapping[ErrorClass, Rule] = field(default_factory=dict)
    max_elapsed: timedelta = timedelta(minutes=30)
    """The time from the start of the first attempt to the start of the last one. No attempt begins later."""
    patience: timedelta = timedelta(minutes=10)
    """The time that a step waits for the end of an outage: that costs it no attempt, and none of ``max_elapsed``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", MappingProxyType(dict(self.rules)))
        _within("max_elapsed", self.max_elapsed.total_seconds(), 0, MAX_SECONDS)
        _within("patience", self.patience.total_seconds(), 0, MAX_SECONDS)

    def decide(
        self,
        failure: Failure,
        attempt: int,
        elapsed: float,
        *,
        random: Callable[[], float] = _random.random,
    ) -> RetryAfter | GiveUp:
        """Try a step that failed again, or give it up.

        ``attempt`` is the number of the attempt that failed, from 1; ``elapsed`` the seconds since the first one began;
        ``random`` draws from [0, 1). A failure that is not retryable, or whose class has no rule, is given up
        unchanged. If attempts or time are used up, or the provider asks for a longer wait than the rule's cap, the
        message of the failure says so.
        """
        rule = self.rules.get(failure.error_class)
        if rule is None or not failure.retryable:
            return GiveUp(failure, stop_reason(failure))
        requested = failure.retry_after
        if requested is not None and requested > rule.retry_after_cap:
            cap = rule.retry_after_cap
            note = f"Gave up: it asks to wait {requested:g} s, the policy allows {cap:g} s."
            return GiveUp(failure.noting(note, user_action="wait"), stop_reason(failure))
        attempts = min(rule.attempts, _AT_MOST.get(failure.code, rule.attempts))
        if attempt >= attempts:
            note = f"Gave up after {attempt} attempt{'s' if attempt != 1 else ''}."
            return GiveUp(failure.noting(note), stop_reason(failure))
        delay = rule.backoff(attempt, random)
        if requested is not None:
            delay = max(delay, requested * (1 + SPREAD * random()))
        limit = self.max_elapsed.total_seconds()
        if elapsed + delay > limit:
            note = f"Gave up: the policy allows {limit:g} s for all attempts."
            return GiveUp(failure.noting(note), stop_reason(failure))
        return RetryAfter(delay, failure, attempts)

    def outlast(self, failure: Failure, turn: float, waited: float, *, other_model: bool) -> Postpone | GiveUp:
        """Wait for the end of an outage, or give the step up. ``failure`` is the provider's last one, ``turn`` the
        seconds until the step may ask again, ``waited`` those since it met the outage. It waits less for its own model
        if the run has an ``other_model`` that is not out, too."""
        patience = self.patience.total_seconds() * (FALLBACK_AFTER if other_model else 1)
        if waited >= patience:
            note = f"Gave up: waited {waited:.0f} s for the outage to end, the policy allows {patience:g} s."
            return GiveUp(failure.noting(note, user_action="wait"), stop_reason(failure))
        return Postpone(min(turn, patience - waited), "outage", failure=failure)

    def over(self, base: RetryPolicy) -> RetryPolicy:
        """This policy, completed with the rules of ``base`` for all classes that this policy does not name."""
        return replace(self, rules={**base.rules, **self.rules})

    def below(self, *, attempts: int | None, max_elapsed: float | None, patience: float | None) -> RetryPolicy:
        """This policy with no more than the given limits, times in seconds; None is no limit. Retries of a store that
        is away are not limited."""
        rules = {
            error_class: rule
            if attempts is None or error_class is ErrorClass.STORAGE
            else replace(rule, attempts=min(rule.attempts, attempts))
            for error_class, rule in self.rules.items()
        }
        return replace(
            self,
            rules=rules,
            max_elapsed=_shorter(self.max_elapsed, max_elapsed),
            patience=_shorter(self.patience, patience),
        )

    def falls_back(self, failure: Failure) -> bool:
        """Tell whether the run continues with its next model once this failure is no longer retried."""
        rule = self.rules.get(failure.error_class)
        return rule is not None and rule.then == "fallback_model"

    @classmethod
    def parse(cls, value: object, *, stored: bool = False) -> Self:
        """A policy from JSON or TOML: ``{"patience": 60, "rules": {"timeout": {"attempts": 3}}}``.

        Times are in seconds; a field that is left out has its default, a class that is not named fails. In a
        policy that is read from the store (``stored``), ``tools`` is ignored: older versions wrote it.

        Raises ConfigurationError: it points at the wrong value and names the nearest right one.
        """
        table = _table(value, (*FIELDS, "tools") if stored else FIELDS)
        rules = _table(table.get("rules", {}), tuple(ErrorClass), pointer="/rules")
        times = {name: table[name] for name in _TIMES if name in table}
        for name, seconds in times.items():
            _within(name, seconds, 0, MAX_SECONDS)
        return cls(
            {ErrorClass(name): _rule(rule, f"/rules/{name}") for name, rule in rules.items()},
            **{name: timedelta(seconds=seconds) for name, seconds in times.items()},
        )

    def dump(self) -> dict[str, Any]:
        """The policy as ``parse`` takes it; also that of older code, unless it says something that is new."""
        usual = self.patience == RetryPolicy().patience
        return {
            "max_elapsed": self.max_elapsed.total_seconds(),
            **({} if usual else {"patience": self.patience.total_seconds()}),
            "rules": {name.value: asdict(rule) for name, rule in self.rules.items()},
        }


_TIMES: Final = ("max_elapsed", "patience")
FIELDS: Final = (*_TIMES, "rules")
"""The fields of a policy."""
_OF_A_RULE: Final = tuple(entry.name for entry in fields(Rule))


def _rule(value: object, pointer: str) -> Rule:
    table = _table(value, _OF_A_RULE, pointer)
    try:
        return Rule(**table)
    except ConfigurationError as error:
        raise ConfigurationError(error.reason, pointer=pointer + error.pointer) from None


def _shorter(time: timedelta, most: float | None) -> timedelta:
    return time if most is None else timedelta(seconds=min(time.total_seconds(), most))


def _within(name: str, value: object, low: float, high: float) -> None:
    """Raise ConfigurationError unless ``value`` is a number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        reason = f"must be a number from {low:g} to {high:g}, not {value!r:.40}"
        raise ConfigurationError(reason, pointer=f"/{name}")


def _table(value: object, names: Collection[str], pointer: str = "") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"must be a table of fields, not {value!r:.40}", pointer=pointer)
    for name in value:
        _known(name, name, names, pointer)
    return value


def _known(name: object, value: object, names: Collection[str], pointer: str = "") -> None:
    if value not in names:
        names = [str(known) for known in names]
        near = get_close_matches(str(value), names, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(names)}"
        raise ConfigurationError(f"no such name: {value!r:.40}{hint}", pointer=f"{pointer}/{name}")


_MODEL_RULE: Final = Rule(attempts=5, first=0.5, max_delay=30)
_STORE_RULE: Final = Rule(attempts=10, first=0.5, max_delay=30)

MODEL_CALL: Final = RetryPolicy(
    {
        ErrorClass.RATE_LIMITED: Rule(attempts=8, first=1, max_delay=60, retry_after_cap=300),
        ErrorClass.PROVIDER_ERROR: _MODEL_RULE,
        ErrorClass.CONNECTION: _MODEL_RULE,
        ErrorClass.TIMEOUT: _MODEL_RULE,
        ErrorClass.STORAGE: _STORE_RULE,
    }
)
"""For calls of a model.

A rate limit is mostly one of a minute: 8 attempts, whose back-offs of up to 1, 2, 4, … 60 s take a minute in
all on average and two at most. A failing provider is back soon or not for long: 5 attempts, at most 7.5 s of
back-off. A store that fails over or loads from disk takes tens of seconds: 10 attempts, at most 122 s."""

TOOL_CALL: Final = RetryPolicy({ErrorClass.TOOL_ERROR: Rule(attempts=3, first=1), ErrorClass.STORAGE: _STORE_RULE})
"""For calls of a tool.

Of the tool errors only those raised as ``RetryableToolError`` are retryable: 3 attempts, then the failure goes to the
model.
"""
