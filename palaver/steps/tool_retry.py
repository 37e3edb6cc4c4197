"""The policy for the failures of a step, and the decision on a failed call of a tool: whether it is tried again, by
which rule, and what the model reads if not.

A call that is not idempotent is tried again only where the tool's own policy allows it: without one it was not said
that the tool is a single request, and one that made two of them has acted by the time the second one fails. With one,
what was not sent may be tried again; what may have been, only for the classes that the policy names.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from dataclasses import replace
from typing import Final, overload

from palaver.errors.failure import Failure
from palaver.errors.finding import ToolFinding
from palaver.errors.vocabulary import ErrorClass
from palaver.late import dataclass
from palaver.steps.retry import RetryPolicy, Rule
from palaver.steps.verdicts import GiveUp, RetryAfter
from palaver.tools.declared import ToolDeclaration

_SERVICE_RULE: Final = Rule(attempts=4, first=0.5, max_delay=15)

SERVICE_CALL: Final = RetryPolicy(
    {
        ErrorClass.RATE_LIMITED: Rule(attempts=5, first=1, max_delay=30),
        ErrorClass.PROVIDER_ERROR: _SERVICE_RULE,
        ErrorClass.CONNECTION: _SERVICE_RULE,
        ErrorClass.TIMEOUT: _SERVICE_RULE,
    }
)
"""For calls of a tool that is idempotent or has a policy, behind the rules of that and of the step's kind.

A model waits for the answer, and perhaps a person: at most 3.5 s of back-off for a service that fails, 15 s for one
that asks for fewer requests, unless it says how long."""

_IN_DOUBT: Final = "It may or may not have taken effect."
_NOT_TAKEN: Final = "The service has not taken the call."


@overload
def policy_for(step: RetryPolicy, tool: None, run: object) -> RetryPolicy: ...
@overload
def policy_for(step: RetryPolicy, tool: ToolDeclaration, run: object) -> ToolPolicy: ...
def policy_for(step: RetryPolicy, tool: ToolDeclaration | None, run: object) -> RetryPolicy | ToolPolicy:
    """The policy for the failures of a step. ``step`` is the one of its decorator, which has the rules that nothing
    more specific has.

    For a call of ``tool``: the rules of its ``@tool(retry=…)`` come first, then those of the decorator, then
    `SERVICE_CALL`. For a call of a model: those of the ``run``, as they are stored with its agent, then those of the
    decorator.
    """
    if tool is not None:
        return ToolPolicy(step, tool.idempotent, None if tool.retry is None else RetryPolicy.parse(tool.retry))
    return step if run is None else RetryPolicy.parse(run, stored=True).over(step)


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """The policy for the calls of one tool."""

    step: RetryPolicy
    """The one of the step's decorator."""
    idempotent: bool
    own: RetryPolicy | None = None
    """The one that the tool declares."""

    @property
    def rules(self) -> RetryPolicy:
        """All of its rules. Whether one holds depends on what has failed."""
        return (self.own or self.step).over(self.step).over(SERVICE_CALL) if self._tries_again else self.step

    @property
    def _tries_again(self) -> bool:
        return self.own is not None or self.idempotent

    def reason(self, finding: ToolFinding) -> str | None:
        """Return why such a call may be tried again, as people read it; None if it may not."""
        error_class = finding.failure.error_class
        if self.own is not None and error_class in self.own.rules:
            return f"{error_class} of the tool's policy"
        if finding.failure.retryable:
            return f"{error_class}: the tool asks for it"
        if not self._tries_again or error_class not in SERVICE_CALL.rules:
            return None
        if not finding.sent:
            return f"{error_class} of SERVICE_CALL: not taken"
        return f"{error_class} of SERVICE_CALL: idempotent" if self.idempotent else None

    def decide(
        self, finding: ToolFinding, attempt: int, elapsed: float, *, random: Callable[[], float] = _random.random
    ) -> RetryAfter | GiveUp:
        """Try a call that failed again, or give it up, as `RetryPolicy.decide`."""
        reason = self.reason(finding)
        failure = replace(finding.failure, retryable=reason is not None)
        verdict = self.rules.decide(failure, attempt, elapsed, random=random)
        if isinstance(verdict, RetryAfter):
            return replace(verdict, rule=reason)
        return replace(verdict, failure=self.noted(verdict.failure, sent=finding.sent))

    def noted(self, failure: Failure, *, sent: bool) -> Failure:
        """Return the failure with what it means for the effects of the call, for the model."""
        if not self._tries_again or failure.error_class not in SERVICE_CALL.rules:
            return failure
        # An earlier attempt may have been taken where the policy lets one follow that was.
        never = not sent and not self.idempotent and not (self.own and self.own.rules)
        note = _NOT_TAKEN if never else _IN_DOUBT
        # Who knows the service has said so already, perhaps.
        return failure if note.rstrip(".").casefold() in failure.message.casefold() else failure.noting(note)
