"""What a step answers: a closed union of values, not a set of magic exceptions."""

from __future__ import annotations

from dataclasses import dataclass, field

from palaver.errors.failure import Failure
from palaver.lifecycle import StopReason
from palaver.models import Message, ToolCall, Usage


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The answer to one tool call: the message for the model and, if it is an error, the judged failure."""

    message: Message
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that becomes a tool step."""

    call: ToolCall
    idempotent: bool


@dataclass(frozen=True, slots=True)
class Continue:
    """The turn goes on: with the model's message and its calls, or with the answer to a call."""

    message: Message | None = None
    """The assistant message; None from a tool step."""
    outcomes: tuple[ToolOutcome, ...] = ()
    """Calls that are answered already."""
    calls: tuple[OpenCall, ...] = ()
    """Calls that become tool steps."""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Finish:
    """The run ends here, without an error."""

    message: Message | None
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try this step again."""

    delay: float
    """Seconds until the next attempt is due."""
    failure: Failure


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further attempt of this step.

    A recoverable failure is told to the model and the run goes on; any other ends the run.
    """

    failure: Failure
    stop_reason: StopReason
    """Why the run ends, if it does."""


Verdict = Continue | Finish | RetryAfter | GiveUp
