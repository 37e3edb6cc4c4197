"""The fields of each kind of event: one class a kind, named like it. Its docstring is the sentence that docs have.

On the wire every field is there. Writers leave out what is a default, and `complete` puts it in when events are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypeAliasType

from palaver.errors import ErrorObject
from palaver.events.kinds import EventKind
from palaver.schemas.actions import PendingAction
from palaver.schemas.fields import DataModel
from palaver.schemas.models import CancelMode, Message
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason


def _without_position(schema: dict[str, Any]) -> None:
    """Only streams over conversations have it: elsewhere the field is not there."""
    schema["required"] = [name for name in schema.get("required", ()) if name != "position"]


class BaseEvent(DataModel):
    """The fields that every event has."""

    model_config = ConfigDict(frozen=True, json_schema_extra=_without_position)

    type: str
    run_id: str
    seq: int
    """From 1, without gaps in a run, but for numbers of events that a watcher did not ask for, and of deltas that it
    was sent as one. An event about the stream itself has the number of the event before it."""
    at: datetime
    """UTC."""
    position: int | None = None
    """In a stream over a conversation, its place there; that of the event before it if it is not in the log."""


class RunCreated(BaseEvent):
    """The run is accepted and stored."""

    type: Literal[EventKind.RUN_CREATED] = EventKind.RUN_CREATED
    conversation_id: str


class RunQueued(BaseEvent):
    """The run waits until another one of its conversation has ended."""

    type: Literal[EventKind.RUN_QUEUED] = EventKind.RUN_QUEUED
    behind: str
    """The id of the run that the conversation is busy with."""


class RunStarted(BaseEvent):
    """A worker has begun the run's first step."""

    type: Literal[EventKind.RUN_STARTED] = EventKind.RUN_STARTED


class RunWaiting(BaseEvent):
    """A step waits for room, the end of an outage, or a worker that has what it needs; no attempt is counted."""

    type: Literal[EventKind.RUN_WAITING] = EventKind.RUN_WAITING
    step: str
    reason: WaitReason
    code: str
    """The reason in a word: ``cooldown``, or the limit that is reached; or ``outage``. With ``no_worker`` the thing
    that is lacked: ``tool:NAME``, ``provider:NAME`` or ``key:VARIABLE``; where the worker's key is refused,
    ``refused_key:PROVIDER``; or ``queue:NAME``, from which no worker takes."""
    delay: float
    """Seconds; less if an outage ends or a place comes free."""
    error: ErrorObject | None = None
    """The error of the last failed call, of this step or another one (outage)."""


class RunRetrying(BaseEvent):
    """An attempt of a step failed, and another one follows."""

    type: Literal[EventKind.RUN_RETRYING] = EventKind.RUN_RETRYING
    step: str
    attempt: int
    """The one that failed."""
    delay: float
    """Seconds until the next."""
    fallback: bool
    """The next of the agent's models takes over."""
    rule: str | None = None
    """The rule that decided on a tool call, and why."""
    cost_usd: float | None = None
    """US dollars for the attempt that failed, if that cost anything and is known."""
    error: ErrorObject


class RunPausing(BaseEvent):
    """A pause was asked for; nothing more is begun."""

    type: Literal[EventKind.RUN_PAUSING] = EventKind.RUN_PAUSING
    now: bool
    """A model call that is under way is aborted."""
    reason: str | None


class RunPaused(BaseEvent):
    """Nothing of the run is under way until it is resumed."""

    type: Literal[EventKind.RUN_PAUSED] = EventKind.RUN_PAUSED


class RunResumed(BaseEvent):
    """The run goes on where it was."""

    type: Literal[EventKind.RUN_RESUMED] = EventKind.RUN_RESUMED


class RunRequiresAction(BaseEvent):
    """Nothing else of the run is going on: it waits for a person or the client."""

    type: Literal[EventKind.RUN_REQUIRES_ACTION] = EventKind.RUN_REQUIRES_ACTION
    pending_actions: tuple[str, ...]
    """Their ids, in call order."""


class RunCancelling(BaseEvent):
    """A cancel is acknowledged."""

    type: Literal[EventKind.RUN_CANCELLING] = EventKind.RUN_CANCELLING
    mode: CancelMode
    by: str | None
    """The name of the key that asked, or ``key/subject``; None without keys."""
    reason: str | None


class RunFinished(BaseEvent):
    """The run has ended. This is its last event."""

    type: Literal[EventKind.RUN_FINISHED] = EventKind.RUN_FINISHED
    status: RunStatus
    stop_reason: StopReason
    error: ErrorObject | None
    """Set if the run failed, and only then."""
    incomplete_details: ErrorObject | None = None
    """Set if the provider withheld an answer, and only then."""


class StepStarted(BaseEvent):
    """A worker has begun an attempt of a step."""

    type: Literal[EventKind.STEP_STARTED] = EventKind.STEP_STARTED
    step: str
    """``1`` for the first model call, ``1/<call id>`` for a tool call that it asked for."""
    attempt: int
    worker: str


class StepLost(BaseEvent):
    """The worker of a step is gone."""

    type: Literal[EventKind.STEP_LOST] = EventKind.STEP_LOST
    step: str
    attempt: int
    worker: str


class MessageDelta(BaseEvent):
    """More text of an answer. Those of an attempt add up to the text of its message; an answer in one piece has one."""

    type: Literal[EventKind.MESSAGE_DELTA] = EventKind.MESSAGE_DELTA
    step: str
    attempt: int
    text: str


class ReasoningDelta(BaseEvent):
    """More of what the model thinks before it answers. Only those who ask for it see it."""

    type: Literal[EventKind.REASONING_DELTA] = EventKind.REASONING_DELTA
    step: str
    attempt: int
    text: str


class MessageCreated(BaseEvent):
    """A message of the user or of the model has entered the conversation."""

    type: Literal[EventKind.MESSAGE_CREATED] = EventKind.MESSAGE_CREATED
    message: Message
    step: str | None = None
    """The model call whose answer it is."""
    model: str | None = None
    """The model that gave it."""
    prompt_tokens: int | None = None
    """Input tokens of that call."""
    output_tokens: int | None = None
    """Output tokens of the attempt, all of its calls."""
    cost_usd: float | None = None
    """US dollars for the attempt, all of its calls; None if it is unknown."""
    risky_calls: tuple[str, ...] | None = None
    """Ids of its calls of tools that are declared ``risky``; None if it did not come from a model step."""
    refused_calls: tuple[str, ...] = ()
    """Ids of its calls that were refused when they came, and are not made: there is no such tool, the arguments do not
    fit it, the call is behind one that ends the run, or the budget has no room for the tool calls of this message."""
    steer: bool = False
    """True if the user sent it while the run was going on."""
    nudge: bool = False
    """True if the engine sent it: the model repeats itself, its answer is empty or not of the form that it has to have,
    or its provider refused images or files."""
    left_out_after: int | None = None
    """With ``nudge``, a position in the conversation's log: models get the images and files behind it in words alone
    from here on."""
    error: ErrorObject | None = None
    """With ``nudge``, the fault of the answer before it."""


class MessageDiscarded(BaseEvent):
    """The text that was shown of this answer will not be stored: forget it."""

    type: Literal[EventKind.MESSAGE_DISCARDED] = EventKind.MESSAGE_DISCARDED
    step: str
    attempt: int


class MessagesWithdrawn(BaseEvent):
    """Models do not see this part any more: its run was rolled back, or the conversation went back to before it."""

    type: Literal[EventKind.MESSAGES_WITHDRAWN] = EventKind.MESSAGES_WITHDRAWN
    first: int
    """Positions in the conversation's log, both included."""
    last: int


class ToolProgress(BaseEvent):
    """A tool says how far a call is."""

    type: Literal[EventKind.TOOL_PROGRESS] = EventKind.TOOL_PROGRESS
    step: str
    """The model's step, if the tool runs within it."""
    attempt: int
    call_id: str
    tool: str
    text: str
    fraction: float | None
    """The finished part of the work, from 0 to 1; None if the tool does not say."""


class ToolFinished(BaseEvent):
    """A tool call has its result."""

    type: Literal[EventKind.TOOL_FINISHED] = EventKind.TOOL_FINISHED
    step: str
    message: Message
    """The tool's result for the model."""
    error: ErrorObject | None = None
    """Why the call failed, if it did."""


class ActionRequired(BaseEvent):
    """A tool call waits for an approval, for the client's output, or for an answer to a question."""

    type: Literal[EventKind.ACTION_REQUIRED] = EventKind.ACTION_REQUIRED
    step: str
    action: PendingAction


class _Resolution(DataModel):
    """The end of a wait for an action."""

    action_id: str
    call_id: str
    decision: Literal["approve", "deny", "edit", "output", "answer", "expired", "cancelled"]
    """``expired``: there was no decision in time; ``cancelled``: the run ended before."""
    by: str | None = None
    """The name of the key that decided, or ``key/subject``."""
    reason: str | None = None
    arguments: str | None = None
    """JSON text: those that take the place of the model's, with ``edit``."""
    response: Literal["accept", "decline", "cancel"] | None = None
    """The response to a question, with ``answer``."""


class ActionResolved(_Resolution, BaseEvent):
    """Such a call waits no more."""

    type: Literal[EventKind.ACTION_RESOLVED] = EventKind.ACTION_RESOLVED


class ChildActionRequired(BaseEvent):
    """A tool call of a run below waits for an approval or for the client's output. It is answered here, too."""

    type: Literal[EventKind.CHILD_ACTION_REQUIRED] = EventKind.CHILD_ACTION_REQUIRED
    child_run_id: str
    """The run that waits."""
    path: tuple[str, ...]
    """The runs that lead from this one down to it, and it."""
    step: str
    """The step of that run."""
    action: PendingAction


class ChildActionResolved(_Resolution, BaseEvent):
    """Such a call of a run below waits no more, by whatever answer."""

    type: Literal[EventKind.CHILD_ACTION_RESOLVED] = EventKind.CHILD_ACTION_RESOLVED
    child_run_id: str
    path: tuple[str, ...]


class BudgetWarning(BaseEvent):
    """80 % of a limit of the run are used up. There is one for each limit."""

    type: Literal[EventKind.BUDGET_WARNING] = EventKind.BUDGET_WARNING
    what: Literal["max_steps", "tokens", "cost_usd", "tool_calls", "seconds", "deadline"]
    used: float | None
    """None: unknown, as a call had an unknown cost."""
    limit: float


class ConversationCondensed(BaseEvent):
    """From here on the model sees a summary in place of the older part of the conversation."""

    type: Literal[EventKind.CONVERSATION_CONDENSED] = EventKind.CONVERSATION_CONDENSED
    step: str
    summary: str
    through: int
    """The position in the conversation's log up to which it stands for the messages."""


class ReasoningDropped(BaseEvent):
    """The model's provider no longer takes back what the model thought so far: from here on it is not sent any more."""

    type: Literal[EventKind.REASONING_DROPPED] = EventKind.REASONING_DROPPED
    step: str
    origin: str
    """The model that had made it: ``protocol/provider/model``."""


class StreamGap(BaseEvent):
    """These events are not stored any more: they were fleeting, or the run ended long ago."""

    type: Literal[EventKind.STREAM_GAP] = EventKind.STREAM_GAP
    first: int
    last: int


class StreamRewound(BaseEvent):
    """The server has lost these events after it had sent them: forget them, the following ones take their place."""

    type: Literal[EventKind.STREAM_REWOUND] = EventKind.STREAM_REWOUND
    first: int
    last: int


class ConversationDeleted(BaseEvent):
    """The conversation is gone, deleted or past its retention: nothing more comes in the stream over it."""

    type: Literal[EventKind.CONVERSATION_DELETED] = EventKind.CONVERSATION_DELETED


class UnknownEvent(BaseEvent):
    """An event of a kind, or in a form, that this version does not know: the server is newer.

    Its other fields are in ``model_extra``.
    """

    model_config = ConfigDict(extra="allow")


KnownEvent = TypeAliasType(
    "KnownEvent",
    Annotated[
        RunCreated
        | RunQueued
        | RunStarted
        | RunWaiting
        | RunRetrying
        | RunPausing
        | RunPaused
        | RunResumed
        | RunRequiresAction
        | RunCancelling
        | RunFinished
        | StepStarted
        | StepLost
        | MessageDelta
        | ReasoningDelta
        | MessageCreated
        | MessageDiscarded
        | MessagesWithdrawn
        | ToolProgress
        | ToolFinished
        | ActionRequired
        | ActionResolved
        | ChildActionRequired
        | ChildActionResolved
        | BudgetWarning
        | ConversationCondensed
        | ReasoningDropped
        | StreamGap
        | StreamRewound
        | ConversationDeleted,
        Field(discriminator="type"),
    ],
)
"""One class for each `EventKind`; ``type`` says which."""
Event = KnownEvent | UnknownEvent
"""An event of a run, for its watchers."""


EVENTS: Final[Mapping[str, type[BaseEvent]]] = MappingProxyType(
    {
        event_class.model_fields["type"].default: event_class
        for event_class in BaseEvent.__subclasses__()
        if event_class is not UnknownEvent
    }
)
"""The class of each `EventKind`."""


@cache
def _known() -> TypeAdapter[KnownEvent]:
    """Made when the first is read: who only writes events needs none of it."""
    return TypeAdapter(KnownEvent)


def read_event(text: bytes | str) -> Event:
    """An event from its JSON, as it is on the wire. Fields that a newer server has added are left out.

    Raises:
        ValueError: it is no event.
    """
    try:
        return _known().validate_json(text, extra="ignore")
    except ValidationError:
        return UnknownEvent.model_validate_json(text)
