"""The vocabulary of events: everything that a watcher of a run may see."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from palaver.events.defaults import complete, is_complete
from palaver.events.kinds import DELTAS, MESSAGES, ON_REQUEST, TRACED, UNDER_WAY, EventKind, PartOf, StoredIn

if TYPE_CHECKING:
    from palaver.events.classes import (
        EVENTS,
        ActionRequired,
        ActionResolved,
        BaseEvent,
        BudgetWarning,
        ChildActionRequired,
        ChildActionResolved,
        ConversationCondensed,
        ConversationDeleted,
        Event,
        KnownEvent,
        MessageCreated,
        MessageDelta,
        MessageDiscarded,
        MessagesWithdrawn,
        ReasoningDelta,
        ReasoningDropped,
        RunCancelling,
        RunCreated,
        RunFinished,
        RunPaused,
        RunPausing,
        RunQueued,
        RunRequiresAction,
        RunResumed,
        RunRetrying,
        RunStarted,
        RunWaiting,
        StepLost,
        StepStarted,
        StreamGap,
        StreamRewound,
        ToolFinished,
        ToolProgress,
        UnknownEvent,
        read_event,
    )

__all__ = [
    "DELTAS",
    "EVENTS",
    "MESSAGES",
    "ON_REQUEST",
    "TRACED",
    "UNDER_WAY",
    "ActionRequired",
    "ActionResolved",
    "BaseEvent",
    "BudgetWarning",
    "ChildActionRequired",
    "ChildActionResolved",
    "ConversationCondensed",
    "ConversationDeleted",
    "Event",
    "EventKind",
    "KnownEvent",
    "MessageCreated",
    "MessageDelta",
    "MessageDiscarded",
    "MessagesWithdrawn",
    "PartOf",
    "ReasoningDelta",
    "ReasoningDropped",
    "RunCancelling",
    "RunCreated",
    "RunFinished",
    "RunPaused",
    "RunPausing",
    "RunQueued",
    "RunRequiresAction",
    "RunResumed",
    "RunRetrying",
    "RunStarted",
    "RunWaiting",
    "StepLost",
    "StepStarted",
    "StoredIn",
    "StreamGap",
    "StreamRewound",
    "ToolFinished",
    "ToolProgress",
    "UnknownEvent",
    "complete",
    "is_complete",
    "read_event",
]


def __getattr__(name: str) -> Any:
    """Load the classes when one of them is first named: workers and scripts go by the kinds alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("palaver.events.classes"), name)
