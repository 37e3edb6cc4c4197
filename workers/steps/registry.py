"""``@step(KIND, retry=POLICY)`` makes a function the work of a kind of step, and names its retry policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from palaver.steps.retry import RetryPolicy
from palaver.steps.verdicts import Verdict
from palaver.store.scripting.contracts.providers import Wait
from palaver.vocabulary.step_kinds import StepKind

from .attempt import Attempt

Function = Callable[[Attempt], Awaitable[Verdict | Wait]]
"""A `Wait` is the answer of a provider's gate: its verdict depends on the policy."""


@dataclass(frozen=True, slots=True)
class StepHandler:
    """The work of a kind of step."""

    kind: StepKind
    retry: RetryPolicy
    """The retry policy for its failures."""
    function: Function
    """The work of one attempt."""


_handlers: Final[dict[StepKind, StepHandler]] = {}


def step(kind: StepKind, *, retry: RetryPolicy) -> Callable[[Function], Function]:
    """Make a function the work of a kind of step: ``@step(MODEL, retry=MODEL_CALL)``.

    It gets the `Attempt` and answers with a verdict, or with when its provider takes a call again. An exception that
    it raises is classified, and ``retry`` says what becomes of each class of error: another attempt and when, another
    model, or the end of the run.

    Raises ValueError for a kind that has its work already.
    """

    def register(function: Function) -> Function:
        if kind in _handlers:
            raise ValueError(f"two functions for one kind of step: {kind.name}")
        _handlers[kind] = StepHandler(kind, retry, function)
        return function

    return register


def handler_of(kind: StepKind) -> StepHandler:
    """The work of a kind. Raises LookupError for a kind without any: its module is not imported."""
    if kind not in _handlers:
        raise LookupError(f"no function is the work of {kind.name} steps: none that is imported has @step")
    return _handlers[kind]
