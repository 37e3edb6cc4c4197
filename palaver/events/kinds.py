"""The kinds of events that there are, where each is stored, and who has to show it."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final


class StoredIn(Enum):
    """The place where an event is stored."""

    LOG = "log"
    """In the conversation's log, as long as the conversation, and in the run's feed."""
    FEED = "feed"
    """In the run's feed alone: a watcher who comes late may miss it."""
    NOWHERE = "nowhere"
    """Sent to one watcher about the stream itself. It has no number."""


class PartOf(Enum):
    """The part of a run that an event tells of: it decides whether a dialect may pass over it."""

    ANSWER = "answer"
    """The answer: texts, calls and their results, what is asked of a person, the end. A dialect that makes events of
    its own of a run's has a row for it: without it, its clients show what is not so."""
    COURSE = "course"
    """The way there: queues, waits, attempts, runs below, the stream itself. A dialect whose clients have no word for
    it says nothing."""


class EventKind(StrEnum):
    """The ``type`` of an event. What each of them says and carries is in ``palaver.events.classes``."""

    stored_in: StoredIn
    part_of: PartOf

    def __new__(cls, value: str, stored_in: StoredIn, part_of: PartOf) -> EventKind:
        """A kind by its name on the wire."""
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.stored_in, kind.part_of = stored_in, part_of
        return kind

    RUN_CREATED = "run.created", StoredIn.LOG, PartOf.COURSE
    RUN_QUEUED = "run.queued", StoredIn.FEED, PartOf.COURSE
    RUN_STARTED = "run.started", StoredIn.LOG, PartOf.COURSE
    RUN_WAITING = "run.waiting", StoredIn.FEED, PartOf.COURSE
    RUN_RETRYING = "run.retrying", StoredIn.LOG, PartOf.COURSE
    RUN_PAUSING = "run.pausing", StoredIn.LOG, PartOf.COURSE
    RUN_PAUSED = "run.paused", StoredIn.LOG, PartOf.COURSE
    RUN_RESUMED = "run.resumed", StoredIn.LOG, PartOf.COURSE
    RUN_REQUIRES_ACTION = "run.requires_action", StoredIn.LOG, PartOf.ANSWER
    RUN_CANCELLING = "run.cancelling", StoredIn.LOG, PartOf.COURSE
    RUN_FINISHED = "run.finished", StoredIn.LOG, PartOf.ANSWER
    STEP_STARTED = "step.started", StoredIn.FEED, PartOf.COURSE
    STEP_LOST = "step.lost", StoredIn.LOG, PartOf.COURSE
    MESSAGE_DELTA = "message.delta", StoredIn.FEED, PartOf.ANSWER
    REASONING_DELTA = "reasoning.delta", StoredIn.FEED, PartOf.ANSWER
    MESSAGE_CREATED = "message.created", StoredIn.LOG, PartOf.ANSWER
    MESSAGE_DISCARDED = "message.discarded", StoredIn.FEED, PartOf.ANSWER
    MESSAGES_WITHDRAWN = "messages.withdrawn", StoredIn.LOG, PartOf.COURSE
    TOOL_PROGRESS = "tool.progress", StoredIn.FEED, PartOf.COURSE
    TOOL_FINISHED = "tool.finished", StoredIn.LOG, PartOf.ANSWER
    ACTION_REQUIRED = "action.required", StoredIn.LOG, PartOf.ANSWER
    ACTION_RESOLVED = "action.resolved", StoredIn.LOG, PartOf.ANSWER
    CHILD_ACTION_REQUIRED = "child.action_required", StoredIn.FEED, PartOf.COURSE
    CHILD_ACTION_RESOLVED = "child.action_resolved", StoredIn.FEED, PartOf.COURSE
    BUDGET_WARNING = "budget.warning", StoredIn.LOG, PartOf.COURSE
    CONVERSATION_CONDENSED = "conversation.condensed", StoredIn.LOG, PartOf.COURSE
    REASONING_DROPPED = "reasoning.dropped", StoredIn.LOG, PartOf.COURSE
    STREAM_GAP = "stream.gap", StoredIn.NOWHERE, PartOf.COURSE
    STREAM_REWOUND = "stream.rewound", StoredIn.NOWHERE, PartOf.COURSE
    CONVERSATION_DELETED = "conversation.deleted", StoredIn.NOWHERE, PartOf.COURSE

    @property
    def durable(self) -> bool:
        """True if the conversation's log has it, too."""
        return self.stored_in is StoredIn.LOG


MESSAGES: Final = frozenset({EventKind.MESSAGE_CREATED, EventKind.TOOL_FINISHED})
"""Kinds that bring a message into the conversation."""
TRACED: Final = frozenset(
    {
        EventKind.RUN_QUEUED,
        EventKind.RUN_STARTED,
        EventKind.RUN_WAITING,
        EventKind.RUN_RETRYING,
        EventKind.RUN_PAUSING,
        EventKind.RUN_PAUSED,
        EventKind.RUN_RESUMED,
        EventKind.RUN_REQUIRES_ACTION,
        EventKind.RUN_CANCELLING,
        EventKind.STEP_LOST,
        EventKind.ACTION_REQUIRED,
        EventKind.ACTION_RESOLVED,
        EventKind.BUDGET_WARNING,
        EventKind.CONVERSATION_CONDENSED,
    }
)
"""Kinds that the trace of a run has as events of the run's span: they explain the time that it took."""
DELTAS: Final = frozenset({EventKind.MESSAGE_DELTA, EventKind.REASONING_DELTA})
"""Kinds that bring more of a text: those of an attempt add up to it."""
UNDER_WAY: Final = DELTAS | {EventKind.TOOL_PROGRESS}
"""Kinds that show work in progress: another event brings its result."""
ON_REQUEST: Final = frozenset({EventKind.REASONING_DELTA})
"""Kinds that only a watcher who asks for them gets."""
