"""The types of events, those that tell of a run, and when a delivery is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from palaver.feature import told_events
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.webhooks import EVENT_TYPES, EventType

ALL_EVENT_TYPES: Final[tuple[str, ...]] = (*EVENT_TYPES, *told_events())
"""The types of events, those that features tell of among them."""
if TYPE_CHECKING:
    AnyEventType = str
else:
    AnyEventType = Literal[ALL_EVENT_TYPES]

TYPE_OF_STATUS: Final[dict[RunStatus, EventType]] = {
    RunStatus.COMPLETED: "run.succeeded",
    RunStatus.INCOMPLETE: "run.incomplete",
    RunStatus.FAILED: "run.failed",
    RunStatus.CANCELLED: "run.cancelled",
    RunStatus.EXPIRED: "run.expired",
}
"""The event that tells of a run's end, by the status that it ended with."""
OPENAI_TYPES: Final[dict[EventType, str]] = {
    "run.succeeded": "response.completed",
    "run.incomplete": "response.incomplete",
    "run.failed": "response.failed",
    "run.expired": "response.failed",
    "run.cancelled": "response.cancelled",
}
"""The types of OpenAI's events. It has none for the others, and they are not sent in its form."""
DELAYS: Final[tuple[int, ...]] = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds from each attempt that failed to the next one. The first is made at once, and the last is the tenth."""
JITTER: Final = 0.1
"""The share of a delay by which it may be longer or shorter."""
TIMEOUT: Final = 15.0
"""Seconds for a whole attempt."""
LEASE: Final = 25.0
"""Seconds after which another worker makes the attempt of one that says nothing more."""
OVERLAP: Final = 86_400
"""Seconds for which a secret signs beside the one that replaces it."""
PATIENT: Final = frozenset({429, 502, 503, 504})
"""Statuses with which a ``Retry-After`` is heeded."""
LONGEST_WAIT: Final = 86_400.0
"""Seconds that a ``Retry-After`` may ask for."""
