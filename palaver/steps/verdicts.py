"""The verdicts of a step: a closed union of values, not a set of magic exceptions."""

from __future__ import annotations

from dataclasses import field

from palaver.errors.failure import Failure
from palaver.late import dataclass
from palaver.schemas.actions import ActionType, ServerQuestion
from palaver.schemas.models import Message, ToolCall, Usage
from palaver.schemas.opaque import Opaque
from palaver.steps.stuck import Nudge
from palaver.vocabulary.lifecycle import StopReason, WaitReason
from palaver.vocabulary.step_kinds import TOOL, StepKind


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The answer to one tool call: the message for the model and, if it is an error, the judged failure."""

    message: Message
    failure: Failure | None = None
    ends_run: bool = False
    """The message is what the run ends with, once the other calls of the turn have their results."""

    @classmethod
    def failed(cls, call: ToolCall, failure: Failure) -> ToolOutcome:
        """A failure as the answer to ``call``, for the model."""
        message = Message(role="tool", call_id=call.id, name=call.name, content=failure.message, is_error=True)
        return cls(message, failure)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that becomes a tool step, now or once it was decided on or answered."""

    call: ToolCall
    idempotent: bool
    awaits: ActionType | None = None
    """The action that must happen before the call begins; None if it may begin now."""
    timeout: float = 0.0
    """The longest wait, in seconds."""
    limit: float | None = None
    """The longest that an attempt may take, in seconds; None if unknown."""
    kind: StepKind = TOOL
    """The kind of the step that it becomes."""
    queue: str | None = None
    """The queue that its tool names; None: that of its kind."""
    second_person: bool = False
    """A person other than the submitter of the run has to approve it."""
    shown: str | None = None
    """The digest of its tool as the model was shown it; None if its worker does not tell, or it is none of a worker."""
    at_hand: bool = False
    """The worker that opens it takes from its queue, and has the tool."""


@dataclass(frozen=True, slots=True)
class FormatMismatch:
    """The answer is not what the agent's format asks for."""

    text: str
    """The text for the model, behind its answer."""
    failure: Failure


@dataclass(frozen=True, slots=True)
class Condensed:
    """From here on the model sees ``summary`` in place of what the log has up to position ``through``."""

    summary: str
    through: int


@dataclass(frozen=True, slots=True)
class ReasoningDropped:
    """From here on nothing that ``origin`` made so far is sent back to it: it does not take it any more."""

    origin: str
    """``protocol/provider/model``."""


LogNote = Nudge | Condensed | ReasoningDropped
"""A change that an attempt made to the conversation before its outcome. The log gets it together with the outcome,
whatever that is."""


@dataclass(frozen=True, slots=True)
class Continue:
    """The turn goes on: with the model's message and its calls, or with the answer to a call."""

    message: Message | None = None
    """The assistant message; None from a tool step."""
    outcomes: tuple[ToolOutcome, ...] = ()
    """Calls that are answered already."""
    calls: tuple[OpenCall, ...] = ()
    """Calls that become tool steps."""
    risky: tuple[str, ...] = ()
    """Ids of the calls of tools that are declared risky."""
    usage: Usage = field(default_factory=Usage)
    """The usage of all calls of the attempt, also of those that failed."""
    notes: tuple[LogNote, ...] = ()
    prompt_tokens: int = 0
    """Input tokens of the one call that ``message`` answers, as its provider counts."""
    opaque: Opaque | None = None
    """Opaque parts that the provider of ``message`` wants back with it."""
    misfit: FormatMismatch | None = None
    """The fault of ``message``, which calls nothing: the model gets a note about it, and is asked again."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The run ends here, without an error."""

    message: Message | None
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    notes: tuple[LogNote, ...] = ()
    prompt_tokens: int = 0
    opaque: Opaque | None = None
    withheld: Failure | None = None
    """The failure for an answer that the provider withheld."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try this step again."""

    delay: float
    """Seconds until the next attempt is due."""
    failure: Failure
    attempts: int | None = None
    """The number of attempts that the policy allows after such a failure; None with a ``fallback``."""
    fallback: bool = False
    """Use the agent's next model. Attempts and time are counted from zero, and the run stays with that model."""
    rule: str | None = None
    """The rule that decided, for people; None for the one of the failure's class."""
    usage: Usage = field(default_factory=Usage)
    notes: tuple[LogNote, ...] = ()


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further attempt of this step.

    A recoverable failure goes to the model and the run continues; any other failure ends the run.
    """

    failure: Failure
    stop_reason: StopReason
    """Why the run ends, if it does."""
    usage: Usage = field(default_factory=Usage)
    notes: tuple[LogNote, ...] = ()
    message: Message | None = None
    """The answer that the run ends with, though it is not of the form that it has to have."""
    opaque: Opaque | None = None
    """Opaque parts that the provider of ``message`` wants back with it."""
    misfit: FormatMismatch | None = None
    """The fault of it: the model gets a note about it if the run is retried."""


@dataclass(frozen=True, slots=True)
class Postpone:
    """A limit does not allow the work yet, or the worker lacks what it needs. The step waits, and this does not count
    as an attempt."""

    delay: float
    """Seconds until the step is due again."""
    code: str
    """The limit that was reached, or the thing that is lacked, as shown in the run's ``waiting``."""
    reason: WaitReason = WaitReason.PROVIDER_COOLDOWN
    failure: Failure | None = None
    """The last failure of the provider, or of a tool's service, in an outage."""
    usage: Usage = field(default_factory=Usage)
    begun: bool = False
    """A tool call that was made, and may have taken effect."""
    kept: str | None = None
    """The part of the call that the next attempt goes on from, as JSON; None if it begins anew. From here on a worker
    that is lost loses nothing."""


@dataclass(frozen=True, slots=True)
class AskPerson:
    """A tool call goes on once a person has answered a question, or the time for it is over. Nothing works on it
    meanwhile."""

    question: ServerQuestion
    timeout: float
    """The longest wait, in seconds. Then the question is declined."""
    kept: str
    """The part of the call that the next attempt goes on from, as JSON."""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class HandBack:
    """The worker stops, or the run is being paused. Another worker does the step, at once or when the run is resumed.

    This does not count as a loss. A tool call that has begun and is not declared idempotent is not started again: its
    result says that it was interrupted, and the model decides what to do.
    """

    begun: bool
    """True if the work may have begun."""
    usage: Usage = field(default_factory=Usage)


Verdict = Continue | Finish | RetryAfter | GiveUp | Postpone | AskPerson | HandBack
