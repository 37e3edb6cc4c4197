"""The kinds of events that there are, and where each is stored."""

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


class EventKind(StrEnum):
    """The ``type`` of an event. What each of them says and carries is in ``palaver.events.classes``."""

    stored_in: StoredIn

    def __new__(cls, value: str, stored_in: StoredIn) -> EventKind:
        """A kind by its name on the wire."""
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.stored_in = stored_in
        return kind

    RUN_CREATED = "run.created", StoredIn.LOG
    RUN_QUEUED = "run.queued", StoredIn.FEED
    RUN_STARTED = "run.started", StoredIn.LOG
    RUN_WAITING = "run.waiting", StoredIn.FEED
    RUN_RETRYING = "run.retrying", StoredIn.LOG
    RUN_PAUSING = "run.pausing", StoredIn.LOG
    RUN_PAUSED = "run.paused", StoredIn.LOG
    RUN_RESUMED = "run.resumed", StoredIn.LOG
    RUN_REQUIRES_ACTION = "run.requires_action", StoredIn.LOG
    RUN_CANCELLING = "run.cancelling", StoredIn.LOG
    RUN_FINISHED = "run.finished", StoredIn.LOG
    STEP_STARTED = "step.started", StoredIn.FEED
    STEP_LOST = "step.lost", StoredIn.LOG
    MESSAGE_DELTA = "message.delta", StoredIn.FEED
    REASONING_DELTA = "reasoning.delta", StoredIn.FEED
    MESSAGE_CREATED = "message.created", StoredIn.LOG
    MESSAGE_DISCARDED = "message.discarded", StoredIn.FEED
    MESSAGES_WITHDRAWN = "messages.withdrawn", StoredIn.LOG
    TOOL_PROGRESS = "tool.progress", StoredIn.FEED
    TOOL_FINISHED = "tool.finished", StoredIn.LOG
    ACTION_REQUIRED = "action.required", StoredIn.LOG
    ACTION_RESOLVED = "action.resolved", StoredIn.LOG
    CHILD_ACTION_REQUIRED = "child.action_required", StoredIn.FEED
    CHILD_ACTION_RESOLVED = "child.action_resolved", StoredIn.FEED
    BUDGET_WARNING = "budget.warning", StoredIn.LOG
    CONVERSATION_CONDENSED = "conversation.condensed", StoredIn.LOG
    REASONING_DROPPED = "reasoning.dropped", StoredIn.LOG
    STREAM_GAP = "stream.gap", StoredIn.NOWHERE
    STREAM_REWOUND = "stream.rewound", StoredIn.NOWHERE
    CONVERSATION_DELETED = "conversation.deleted", StoredIn.NOWHERE

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
