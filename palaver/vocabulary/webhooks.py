"""Webhooks: the types of their events, and when a delivery is tried again."""

from __future__ import annotations

from typing import Final, Literal, get_args

from palaver.vocabulary.lifecycle import RunStatus

EventType = Literal[
    "run.succeeded",
    "run.incomplete",
    "run.failed",
    "run.cancelled",
    "run.expired",
    "run.action_required",
    "webhook.disabled",
]
"""The types of events. Each webhook has those that it names, or all of them."""
EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)
TYPE_OF_STATUS: Final[dict[RunStatus, EventType]] = {
    RunStatus.COMPLETED: "run.succeeded",
    RunStatus.INCOMPLETE: "run.incomplete",
    RunStatus.FAILED: "run.failed",
    RunStatus.CANCELLED: "run.cancelled",
    RunStatus.EXPIRED: "run.expired",
}
"""The event that tells of a run's end, by the status that it ended with."""
Format = Literal["palaver", "openai"]
"""The form of the bodies: Palaver's own, or that of OpenAI's ``response.*`` events."""
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
DeliveryState = Literal["pending", "delivered", "failed"]
"""Pending: it will be tried, for the first time or again."""
OffReason = Literal["disabled", "gone", "failing"]
"""By a request; the receiver answered 410; every attempt of five days failed."""
AttemptResult = Literal["delivered", "again", "failed", "gone"]
"""The result of an attempt: again, there will be another one; failed, it was the last; gone, the receiver wants nothing
any more."""
WebhookCondition = Literal["on", "failing", "off"]
"""Failing: the last attempt did."""
