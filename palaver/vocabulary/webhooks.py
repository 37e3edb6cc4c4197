"""Webhooks: the types of their events, and the states of a delivery."""

from __future__ import annotations

from typing import Final, Literal, get_args

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
Format = Literal["palaver", "openai"]
"""The form of the bodies: Palaver's own, or that of OpenAI's ``response.*`` events."""
DeliveryState = Literal["pending", "delivered", "failed"]
"""Pending: it will be tried, for the first time or again."""
OffReason = Literal["disabled", "gone", "failing"]
"""By a request; the receiver answered 410; every attempt of five days failed."""
AttemptResult = Literal["delivered", "again", "failed", "gone"]
"""The result of an attempt: again, there will be another one; failed, it was the last; gone, the receiver wants nothing
any more."""
WebhookCondition = Literal["on", "failing", "off"]
"""Failing: the last attempt did."""
